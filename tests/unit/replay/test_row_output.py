"""`replay row`: what it prints, and which stores and views it refuses."""

from __future__ import annotations

import pytest

from headwater.projections.generations.rebuild.single_rows import FoldedRow
from headwater.replay.row import RowsFound
from headwater.samples.listings.views import listings
from tests.support.planned import plans_in_postgres
from tests.unit.replay.played import Stage, generation


def test_what_differs_is_printed_by_store_and_field(capsys: pytest.CaptureFixture[str]) -> None:
    folded = {"city": "Galt", "price": 5}
    rows = [
        FoldedRow("L1", "postgres", "replaced", folded, ({"price": 6}, {"price": 5})),
        FoldedRow("L1", "elasticsearch", "equal", folded),
        FoldedRow("L1", "valkey", "differs", folded, (None, {"price": 5})),
    ]
    RowsFound(listings, 3, ["listing/L1"], rows).show()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith('listings g3: listing/L1 says {"listing_id": "L1", "city": "Galt", ')
    assert lines == [
        "postgres: replaced by what the log says",
        "elasticsearch: as the log says",
        "valkey: differs from the log",
        "store\tfield\tstored\tlog",
        "postgres\tprice\t6\t5",
        "valkey\tprice\tmissing\t5",
    ]


def test_json_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    folded = {"details": '{"n":1}', "note": "5", "_state0": [{"_value": '["a"]', "_order": 1}]}
    found = RowsFound(plans_in_postgres, 3, None, [FoldedRow("P1", "postgres", "equal", folded)])
    row = found.to_json()["row"]
    assert (row["details"], row["note"]) == ({"n": 1}, "5")
    found.show()
    assert '"details": {"n": 1}, "note": "5"' in capsys.readouterr().out


def test_a_row_that_the_log_does_not_have_is_said_to_be_missing(capsys: pytest.CaptureFixture[str]) -> None:
    RowsFound(listings, 3, None, [FoldedRow("L1", "valkey", "differs", None, ({}, None))]).show()
    assert capsys.readouterr().out.splitlines() == [
        "listings g3: the whole log has no such row",
        "valkey: differs from the log",
        "store\tfield\tstored\tlog",
        "valkey\t(the row)\tnull\tmissing",
    ]


def test_a_store_that_the_view_is_not_in_and_a_view_that_is_not_folded_are_refused(stage: Stage) -> None:
    told = stage.run("row", "listings", "L1", "--store", "topic")
    assert (told.code, told.out) == (2, "")
    assert '"listings" is not in a store "topic": use ' in " ".join(told.err.split())
    assert stage.run("row", "nothing", "L1").code == 2
    told = stage.run("row", "streams", "listing/L1")
    assert (told.code, told.err) == (
        1,
        'replay: rows of "streams" cannot be folded alone: it has no live generation: rebuild it\n',
    )
    stage.registry.generations = [generation("listings", 2, "live", declaration=["other"], version=listings.version)]
    told = stage.run("row", "listings", "L1")
    assert told.code == 1
    assert "which has another declaration: run the code of that version" in told.err
