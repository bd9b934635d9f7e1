"""Rows of captured tables in views: declarations, and the same meaning in Python and in the live query's SQL."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from headwater import EVERY, Deleted, Postgres, TableView, count, current, envelope, last
from headwater.eventlog.envelope import Envelope, Position
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.reading import reader
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import FoldedView, Folder
from headwater.projections.reading.program import decoders
from headwater.projections.table.event_data import Unreadable
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import Column
from headwater.projections.table.monoids import State
from headwater.samples.listings.domain import PriceChanged
from tests.support.captured_things import USUAL, VIEWS, Pair, Thing, by_id, random_records, random_row
from tests.support.seeds import sweep
from tests.support.states import differences, touched
from tests.support.topic_records import TopicRecord, patches_in, reason_of

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
LACKS = "lacks a column, or has it with another type: "
SETTINGS = LogSettings(environment="t_unit", partitions=3, patch_partitions=3)


@pytest.mark.parametrize("number", sweep(5, 2))
def test_compiled_python_reads_captured_rows_as_defined(number: int) -> None:
    made = random_records(number)
    folder = Folder(
        FoldedView, decoders(VIEWS), [compiled(view) for view in VIEWS], alone=[decoders([view]) for view in VIEWS]
    )
    for record in made:
        folder.add(record.source, [record.message])
    for view, fold in zip(VIEWS, folder.views, strict=True):
        rows: dict[str, State] = {}
        letters = set()
        for record in made:
            if topic_and_partition(record.source)[0] in view.topics:
                try:
                    for patch in patches_in(view, record):
                        view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
                except Unreadable as error:
                    letters.add((record.source, record.offset, str(error)))
        assert {(letter.source, letter.offset, reason_of(letter)) for letter in fold.letters} == letters
        names = [field.name for field in view.layout.fields]
        folded = {key: dict(zip(names, row, strict=True)) for key, row in fold.drain().items()}
        plain = [{key: touched(state) for key, state in each.items()} for each in (folded, rows)]
        assert differences(*plain) == []


@pytest.mark.parametrize("operation", ["c", "r", "u"])
def test_records_that_are_as_declared_are_not_read_by_the_slow_definition(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.projections.reading.fold_records.envelope_of", never)
    after = {name: usual[0] for name, usual in USUAL.items()}
    value = json.dumps({"before": None, "after": after, "op": operation, "source": {"ts_ms": 1}}).encode()
    folder = Folder(FoldedView, decoders([by_id]), [compiled(by_id)])
    folder.add(f"{Thing.topic()}/0", [TopicRecord(f"{Thing.topic()}/0", 5, 7, b'{"id":1}', value).message])
    assert folder.views[0].letters == []
    (row,) = folder.views[0].drain().values()
    state = dict(zip([field.name for field in by_id.layout.fields], row, strict=True))
    shown = reader.finish(by_id, "1", state)
    assert (shown["name"], shown["amount"], shown["made_at"]) == ("Ann", 0, "2024-02-29T10:11:12.123Z")
    assert json.loads(shown["extra"]) == {"a": 1, "b": [1, 2.5, "x"]}


def never(*_: object) -> None:
    raise AssertionError("an ordinary record needs no second look")


def test_a_view_reads_events_and_a_table_in_one_row() -> None:
    view = TableView(
        "mixed", "listing_id", {"name": current(Thing, "name"), "renamed": count(PriceChanged)}, (Postgres(),)
    )
    assert view.topics == ("events", "cdc.things.public.things")
    assert view.plan.reads_events
    assert not by_id.plan.reads_events


@pytest.mark.parametrize("operation", [[], {}, ["d"], 7, True, "t", "x"])
def test_a_record_whose_operation_is_none_of_a_row_is_no_change(operation: object) -> None:
    text = json.dumps({"op": operation, "after": random_row(random.Random(0), 0.0)}).encode()
    with pytest.raises(Unreadable, match='"op" is not c, r, u or d'):
        patches_in(by_id, TopicRecord(f"{Thing.topic()}/0", 0, 0, b'{"id":1}', text))


def test_events_alone_make_no_row_that_the_table_lacks() -> None:
    """The tombstone of a deleted row is gone one day, and a rebuild must not bring the row back."""
    columns: dict[str, Column] = {"name": current(Thing, "name"), "changes": count(PriceChanged)}
    view = TableView("mixed", "listing_id", columns, (Postgres(),), deleted_by=(Deleted(Thing),))
    data = {"listing_id": "1", "city": "A", "previous_price": 1, "price": 2}
    event = Envelope("listing/1/1", PriceChanged.type, "listing/1", WHEN, data, data_version=1, sequence=1)
    changed = Source(event, Position(0, 7), 0, "")
    rows: dict[str, State] = {}
    for patch in reader.lift(view, changed):
        view.layout.combine(rows.setdefault(patch.key, {}), patch.fields)
    assert reader.is_deleted(rows["1"])
    value = {"op": "c", "after": random_row(random.Random(0), 0.0) | {"name": "Ann"}}
    there = TopicRecord(f"{Thing.topic()}/0", 0, 0, b'{"id":1}', json.dumps(value).encode())
    for patch in patches_in(view, there):
        view.layout.combine(rows["1"], patch.fields)
    assert not reader.is_deleted(rows["1"])
    assert reader.finish(view, "1", rows["1"]) == {"listing_id": "1", "name": "Ann", "changes": 1}


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: TableView("v", "k", {"n": count(Thing)}, (Postgres(),)), 'has no field "k"'),
        (lambda: TableView("v", "k", {"n": last({Thing: "name"})}, (Postgres(),)), "only current rows are known"),  # type: ignore[dict-item]
        (lambda: TableView("v", "k", {"n": last({Thing: "name"})}, (Postgres(),)), 'current(Thing, "…")'),  # type: ignore[dict-item]
        (lambda: TableView("v", "k", {"n": current(Thing, "name")}, (Postgres(),), deleted_by=(Thing,)), "Deleted(Th"),  # type: ignore[arg-type]
        (lambda: TableView("v", "k", {"n": current(Thing, "nome")}, (Postgres(),)), 'has no column "nome"; it has'),
        (
            lambda: TableView(
                "v", "k", {"n": current(Thing, "name")}, (Postgres(),), deleted_by=(Deleted(Thing), Deleted(Pair))
            ),
            "stands alone",
        ),
        (
            lambda: TableView(
                "v", envelope("stream"), {"n": current(Thing, "name"), "all": count(EVERY)}, (Postgres(),), key_name="k"
            ),
            "EVERY beside rows of the captured table Thing",
        ),
        (
            lambda: TableView(
                "v",
                envelope("stream"),
                {"all": count(EVERY)},
                (Postgres(),),
                key_name="k",
                deleted_by=(Deleted(Thing),),
            ),
            "name the events instead",
        ),
    ],
)
def test_what_needs_history_is_refused_with_what_to_do(declare: Callable[[], TableView], says: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        declare()
    assert says in str(refused.value)
