"""Declarations of stream views: what is refused, what changes a fingerprint, and what stays light."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater import (
    DECIMAL,
    FLOAT,
    INTEGER,
    TEXT,
    UNCHANGED,
    Elasticsearch,
    Observation,
    Postgres,
    StreamView,
    Topic,
    events,
    observations,
)
from headwater.eventlog.declaring import WrongArguments
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.steps import Memory, Steps
from headwater.projections.table.types import ColumnType
from headwater.testing import query_digests
from tests.contracts.exact_views import Billed
from tests.support.observed import Closed, Passed, by_minute, gate_view


class Taken(Observation, type="taken"):
    """Has a field that every source has."""

    source: str


class Weighed(Observation, type="weighed"):
    """Declares the weight as a text."""

    gate: str
    weight: str


def of_nothing() -> Any:
    return None


def of_two(passed: Any, again: Any) -> Any:
    return passed, again


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "Gates"}, "invalid name"),
        ({"name": "ledger"}, "reserved"),
        ({"key": ()}, "it has no key"),
        ({"key": ("gate", "hour")}, 'key column "hour" is not among its columns gate, minute'),
        ({"key": "number"}, 'the text of its key needs a column of its own, not "number": set key_name'),
        ({"key": "gate", "columns": {"gate": FLOAT}}, 'key column "gate" is FLOAT: use one of TEXT, INTEGER'),
        ({"key_name": "gate"}, 'the text of its key needs a column of its own, not "gate"'),
        ({"columns": {"gate": TEXT, "minute": ColumnType.COUNTS}}, 'column "minute" has the type'),
        ({"columns": {"gate": str, "minute": TEXT}}, 'column "gate" has the type'),
        ({"columns": {"gate": TEXT, "minute": TEXT, "No": INTEGER}}, '"No" is not a column name'),
        ({"sources": {}}, "it has no source"),
        ({"sources": {"passed": observations(late_after="1h")}}, 'source "passed": observations() needs at least one'),
        ({"sources": {"passed": observations(Passed, late_after="1 hour")}}, '"1 hour" is not a duration'),
        ({"sources": {"passed": observations(Passed, late_after="0s")}}, '"0s" is not a duration'),
        ({"sources": {"passed": observations(Observation, late_after="1h")}}, '"Observation" is not a class'),
        ({"sources": {"passed": observations(Taken, late_after="1h")}}, 'field "source" of "taken" has the name'),
        (
            {"sources": {"passed": observations(Passed, Weighed, late_after="1h")}},
            'field "weight" with different types',
        ),
        ({"sources": {"gone": observations(Passed, late_after="1h")}}, "an argument per source (gone)"),
        ({"query": of_nothing}, "an argument per source (passed)"),
        ({"late": "forget"}, 'late="forget" is unknown: use "amend", "drop" or "keep"'),
        ({"late": "keep", "keep_state": "7d"}, 'use it with late="amend" only'),
        ({"late": "keep", "name": "g" * 37}, f'late="keep" makes a view "{"g" * 37}_late": invalid name'),
        ({"late": "amend"}, 'late="amend" needs keep_state'),
        ({"keep_state": "7d"}, 'use it with late="amend" only'),
        ({"late": "amend", "keep_state": "9m"}, 'shorter than late_after of source "passed"'),
        ({"late": "amend", "keep_state": "1d", "final": True}, "a final row is sent once"),
        ({"every": "30"}, '"30" is not a duration'),
        ({"every": "301s"}, 'every="301s" is more than 5 minutes'),
        ({"realtime": True, "late": "keep"}, 'late="keep" needs batches: use late="drop", or leave out realtime'),
        ({"realtime": True, "late": "amend", "keep_state": "1d"}, 'late="amend" needs batches'),
        ({"realtime": True, "final": True}, "a real-time view sends each row at once: leave out final or realtime"),
        ({"realtime": True, "every": "5s"}, "a real-time view sends each row at once: leave out every or realtime"),
        ({"realtime": True, "sources": {}}, "it has no source"),
        (
            {
                "realtime": True,
                "sources": {name: observations(Passed, late_after="1h") for name in ("passed", "again")},
                "query": of_two,
            },
            "a real-time view has one source: read all classes as one, or leave out realtime",
        ),
        ({"deleted_by": "number"}, 'deleted_by="number" is also a column of the view'),
        ({"deleted_by": "key"}, 'deleted_by="key" is also a column of the view'),
        ({"deleted_by": "Gone"}, '"Gone" is not a column name'),
        ({"deleted_by": (Closed,)}, "is not a text: name the BOOLEAN column of the query that deletes rows"),
        ({"stores": (Postgres(indexes=(("gone",),)),), "deleted_by": "gone"}, 'names the unknown column "gone"'),
        ({"stores": (Postgres(indexes=(("-nothing",),)),)}, 'names the unknown column "nothing"'),
        ({"stores": ()}, "it has no store"),
        ({"stores": (Topic(), Postgres())}, "Topic() cannot be its first store, which answers queries"),
        ({"stores": (Elasticsearch(facets=("colour",)),)}, 'names the unknown column "colour"'),
    ],
)
def test_what_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ViewDeclarationError) as refused:
        gate_view(**changes)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f'view "{changes.get("name", "gates")}": ')


def test_what_it_is_to_the_rest() -> None:
    view = gate_view()
    assert (view.tag, view.patch_tag(3), view.topics) == ("gates@1", "gates@1.g3", ("observations",))
    assert list(view.types) == ["key", "gate", "minute", "number", "weight"]
    assert [field.name for field in view.layout.fields] == ["_batch", "gate", "minute", "number", "weight"]
    assert view.reads("observations")
    assert not view.reads("events")
    one = gate_view(key="gate", columns={"gate": TEXT, "number": INTEGER})
    assert list(one.types) == ["gate", "number"]
    state: dict[str, Any] = {}
    for batch, number in ((2, 5), (1, 9), (2, 6)):
        one.layout.combine(state, {"_batch": batch, "number": number})
    assert state == {"_batch": 2, "number": 6}
    one.layout.combine(state, {"_batch": 3})
    assert state == {"_batch": 3, "number": None}


def test_how_often_batches_begin_changes_no_row() -> None:
    assert gate_view(every="30s").fingerprint == gate_view().fingerprint
    assert (gate_view(every="5m").every_s, gate_view().every_s) == (300.0, 0.0)


def test_the_generations_of_a_real_time_view_take_the_same_patches() -> None:
    view = gate_view(realtime=True)
    assert (view.patch_tag(1), view.patch_tag(2), view.has_state, view.has_own_query) == (
        "gates@1", "gates@1", False, True
    )  # fmt: skip
    assert gate_view().has_state


def test_a_column_that_deletes_rows_is_no_column_of_the_view() -> None:
    view = gate_view(deleted_by="gone")
    assert view.types == gate_view().types
    assert view.layout.marks_deleted
    state: dict[str, Any] = {}
    for fields in ({"_batch": 2, "_deleted": True, "number": 3}, {"_batch": 1, "number": 1}):
        view.layout.combine(state, fields)
    assert state["_deleted"] is True
    view.layout.combine(state, {"_batch": 3, "number": 4})
    assert not state["_deleted"]


def test_a_fingerprint_follows_what_is_declared() -> None:
    before = gate_view().fingerprint
    assert gate_view().fingerprint == before
    for changes in (
        {"late": "amend", "keep_state": "1d"},
        {"sources": {"passed": observations(Passed, late_after="11m")}},
        {"sources": {"passed": observations(Passed, Closed, late_after="10m")}},
        {"final": True},
        {"deleted_by": "gone"},
        {"realtime": True},
        {"key": ("minute", "gate")},
    ):
        assert gate_view(**changes).fingerprint != before


def imported(name: str, text: str, folder: Path) -> Any:
    """A module with this text, as a user's package has it."""
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def documented() -> tuple[str, list[str]]:
    """The page, and the Python on it."""
    text = (Path(__file__).parents[3] / "docs" / "stream-views.md").read_text()
    return text, re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_documented_step_and_pattern_work(tmp_path: Path) -> None:
    _, blocks = documented()
    ordered, timed = (block for block in blocks if "in_order" in block)
    pattern, unpaid = (block for block in blocks if "pattern(" in block)
    compare = imported("documented_step", ordered, tmp_path).compare
    charges = [SimpleNamespace(id=name, cents=cents) for name, cents in (("a", 4), ("b", 4), ("c", 9))]
    state, sent = None, []
    for charge in charges:
        returned, rows = compare(state, charge)
        state = state if returned is UNCHANGED else returned
        sent += rows
    assert sent == [{"id": "c", "cents": 9, "previous": 4}]
    silence = imported("documented_time", ordered + timed, tmp_path)
    given = {"id": ColumnType.TEXT, "time": ColumnType.TIME, "card": ColumnType.TEXT}
    steps = Steps(silence.heard, given, {"card": ColumnType.TEXT}, silence.HOUR, silence.silent)
    memory, _ = steps.run(Memory(), [{"id": "a", "time": 0, "card": "c"}])
    assert steps.wake(memory, silence.HOUR // timedelta(microseconds=1) + 1)[1] == ['{"card":"c"}']
    guessed = imported("documented_pattern", pattern, tmp_path).guessed
    assert "type" in guessed.sources["reports"].columns
    assert imported("documented_absence", pattern + unpaid, tmp_path).UNPAID.unless


def test_the_documented_real_time_view_is_one(tmp_path: Path) -> None:
    _, blocks = documented()
    (block,) = (block for block in blocks if "realtime=True" in block)
    view = imported("documented_realtime", blocks[0] + block, tmp_path).views_at_once
    assert (view.realtime, view.key_columns) == (True, ("id",))


def test_the_documented_view_is_one(tmp_path: Path) -> None:
    text, (block, *_) = documented()
    view = imported("documented_views", block, tmp_path).views_per_hour
    assert list(view.types) == ["key", "page", "hour", "views"]
    assert set(view.sources["views"].columns) == {"page", "country", "time", "recordedtime", "id", "source"}
    assert all(f"`{name}`" in text for name in ("time", "recordedtime", "id", "source", "type"))


QUERY = """
from tests.support.observed import gate_view
from tests.support.observed import Passed as Passed

def by_gate(passed):
    return passed.groupBy("gate").count()

counted = gate_view(name="counted", late="keep", query=by_gate)
"""


def test_a_changed_query_without_another_version_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def digests(name: str, text: str) -> dict[str, str]:
        (tmp_path / f"{name}.py").write_text(text)
        return query_digests(name)

    before = digests("first_queries", QUERY)
    assert list(before) == ["counted@1"]
    assert digests("same_queries", QUERY) == before
    assert digests("changed_queries", QUERY.replace('"gate"', '"weight"')) != before


def test_the_shipped_view_is_found_without_spark() -> None:
    assert isinstance(ViewRegistry.load(["listings"]).view("hourly_views"), StreamView)
    program = "import sys; from headwater.projections.registry import ViewRegistry as V; V.load(['listings'])"
    checked = f"{program}; assert 'pyspark' not in sys.modules, 'imports Spark'"
    done = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_that_a_declaration_needs_come_from_one_place() -> None:
    import headwater

    view = StreamView(
        name="gates",
        key="gate",
        columns={"gate": headwater.TEXT, "minute": headwater.TIME, "number": INTEGER, "weight": INTEGER},
        sources={"passed": headwater.observations(Passed, late_after="10m")},
        stores=(Postgres(),),
        query=by_minute,
    )
    assert view.key_name == "gate"


def test_decimals_dates_and_uuids_of_a_source_are_texts_that_are_declared_as_json() -> None:
    source = events(Billed, late_after="1h")
    assert {name: kind for name, kind in source.fields.items() if kind is not ColumnType.TEXT} == {
        **dict.fromkeys(
            ("price", "fee", "rate", "wide", "whole", "due", "settled", "reference", "charges"), ColumnType.JSON
        ),
        "number": ColumnType.INTEGER,
        "flag": ColumnType.BOOLEAN,
    }
    assert "('price', 'json')" in source.declaration


@pytest.mark.parametrize("digits", [(39, 2), (0, 0), (2, 3), ("12", 2)])
def test_a_type_of_decimals_that_no_store_has_is_refused(digits: Any) -> None:
    with pytest.raises(WrongArguments, match="1 to 38 digits"):
        DECIMAL(*digits)
