"""Every monoid is associative, has null as its identity, and combines alike in Python and in PostgreSQL's words."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.projections.table.layout import DELETED, Values
from headwater.projections.table.monoids import (
    REGISTERS,
    Extreme,
    Keyed,
    Monoid,
    Pick,
    Ranked,
    Sketch,
    State,
    StateField,
    Sum,
    Tally,
    estimate,
    register_of,
    sketch_field,
    tally_field,
)
from headwater.projections.table.types import ColumnType

ORDER = StateField("_order", ColumnType.INTEGER, ordering=True)
VALUE, OTHER = StateField("value", ColumnType.INTEGER), StateField("other", ColumnType.TEXT)
LAST, FIRST = Pick((ORDER,), (VALUE, OTHER), highest=True), Pick((ORDER,), (VALUE, OTHER), highest=False)
RANK, KEY = StateField("rank", ColumnType.INTEGER), StateField("key", ColumnType.TEXT)
LIST = StateField("value", ColumnType.ENTRIES, entry=(RANK, ORDER, OTHER))
REMOVED = StateField(DELETED, ColumnType.BOOLEAN)
PART = (KEY, VALUE, RANK, ORDER, REMOVED)
PARTS = Keyed(
    StateField("value", ColumnType.ENTRIES, entry=PART),
    KEY,
    (Sum(VALUE), Extreme(RANK, highest=True), Pick((ORDER,), (REMOVED,), highest=True)),
    3,
)
drawn = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MONOIDS: Mapping[str, Monoid] = {
    "last": LAST,
    "first": FIRST,
    "sum": Sum(VALUE),
    "maximum": Extreme(VALUE, highest=True),
    "minimum": Extreme(VALUE, highest=False),
    "tally": Tally(tally_field("value", ColumnType.INTEGER)),
    "newest": Ranked(LIST, (ORDER,), 2, highest=True),
    "oldest": Ranked(LIST, (ORDER,), 3, highest=False),
    "top": Ranked(LIST, (RANK, ORDER), 2, highest=True),
    "distinct": Keyed(StateField("value", ColumnType.ENTRIES, entry=(VALUE,)), VALUE, (), 3),
    "nested": PARTS,
    "sketch": Sketch(sketch_field("value")),
}
NUMBERS = st.integers(-(2**40), 2**40)


def patches(monoid: Monoid) -> st.SearchStrategy[State]:
    """What one event brings; two events never have the same ordering key, for that is a place in the log."""
    if isinstance(monoid, Pick):
        return st.fixed_dictionaries({"value": st.none() | NUMBERS, "other": st.none() | st.text(max_size=3)})
    if isinstance(monoid, Tally):
        entry = st.fixed_dictionaries({"v": st.integers(0, 3), "n": st.sampled_from([1, -1])})
        return st.fixed_dictionaries({"value": st.lists(entry, max_size=3)})
    if isinstance(monoid, Ranked):
        ranked = st.fixed_dictionaries({"rank": st.integers(0, 2), "other": st.text(max_size=3)})
        return st.fixed_dictionaries({"value": st.lists(ranked, max_size=1)})
    if isinstance(monoid, Keyed):
        part = {"key": st.sampled_from("abcdef"), "value": st.integers(0, 5)}
        more = {"rank": st.integers(0, 9), DELETED: st.booleans()} if monoid is PARTS else {}
        return st.fixed_dictionaries({"value": st.lists(st.fixed_dictionaries(part, optional=more), max_size=3)})
    if isinstance(monoid, Sketch):
        return st.fixed_dictionaries({"value": st.lists(st.integers(0, 50).map(register_of), max_size=2)})
    return st.fixed_dictionaries({"value": st.none() | NUMBERS})


@st.composite
def histories(draw: st.DrawFn, monoid: Monoid) -> list[State]:
    drawn = draw(st.lists(patches(monoid), max_size=8))
    if isinstance(monoid, Pick):
        orders = draw(st.permutations(range(len(drawn))))
        return [patch | {"_order": order} for patch, order in zip(drawn, orders, strict=True)]
    if isinstance(monoid, Ranked | Keyed):
        entries = [entry for patch in drawn for entry in patch["value"]]
        for entry, order in zip(entries, draw(st.permutations(range(len(entries)))), strict=True):
            entry["_order"] = order
    return drawn


def combined(monoid: Monoid, states: list[State]) -> State:
    row: State = {}
    for state in states:
        monoid.combine(row, deepcopy(state))
    return row


def shown(monoid: Monoid, row: State) -> State:
    """A row with what no event touched made explicit; a sum is 0 then, once any event came."""
    return {field.name: row.get(field.name) for field in monoid.fields}


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=list(MONOIDS))
@drawn
@given(data=st.data())
def test_parts_combined_anyhow_make_the_same_row(monoid: Monoid, data: st.DataObject) -> None:
    history = data.draw(histories(monoid))
    cut = data.draw(st.integers(0, len(history)))
    left, right = combined(monoid, history[:cut]), combined(monoid, history[cut:])
    whole = shown(monoid, combined(monoid, history))
    if history:
        assert shown(monoid, combined(monoid, [left, right])) == (
            whole if not isinstance(monoid, Sum) else whole | {"value": whole["value"] or 0}
        )
    assert shown(monoid, combined(monoid, [{}, *history, {}])) == (
        whole if not isinstance(monoid, Sum) else {"value": whole["value"] or 0}
    )


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=list(MONOIDS))
@drawn
@given(data=st.data())
def test_the_order_of_arrival_never_shows(monoid: Monoid, data: st.DataObject) -> None:
    history = data.draw(histories(monoid))
    other = data.draw(st.permutations(history))
    assert shown(monoid, combined(monoid, history)) == shown(monoid, combined(monoid, list(other)))


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=list(MONOIDS))
@drawn
@given(data=st.data())
def test_a_patch_is_left_as_it_was(monoid: Monoid, data: st.DataObject) -> None:
    history = data.draw(histories(monoid))
    before = deepcopy(history)
    row: State = {}
    for patch in history:
        monoid.combine(row, patch)
    assert history == before


def test_a_tally_takes_back_and_drops_what_is_held_no_more() -> None:
    tally = Tally(tally_field("value", ColumnType.INTEGER))
    row: State = {}
    tally.combine(row, {"value": [{"v": 350, "n": 1}, {"v": 360, "n": 1}]})
    tally.combine(row, {"value": [{"v": 350, "n": -1}]})
    assert row == {"value": {"360": 1}}
    tally.combine(row, {"value": {"360": -1}})
    assert row == {"value": {}}


@drawn
@given(data=st.data())
def test_a_list_is_what_sorting_everything_would_leave(data: st.DataObject) -> None:
    history = data.draw(histories(MONOIDS["top"]))
    entries = [entry for patch in history for entry in patch["value"]]
    best = sorted(entries, key=lambda entry: (entry["rank"], entry["_order"]))[-2:]
    assert combined(MONOIDS["top"], history).get("value", []) == best


@drawn
@given(data=st.data())
def test_a_part_that_was_deleted_last_stays_deleted_whatever_comes_late(data: st.DataObject) -> None:
    history = data.draw(histories(PARTS))
    gone = {"value": [{"key": "a", "_order": 1_000, DELETED: True}]}
    at = data.draw(st.integers(0, len(history)))
    row = combined(PARTS, [*history[:at], gone, *history[at:]])
    assert "a" not in [part["key"] for part in Values("value", ("key",)).value(row)]
    PARTS.combine(row, {"value": [{"key": "a", "_order": 1_001, DELETED: False}]})
    assert "a" in [part["key"] for part in Values("value", ("key",)).value(row)]


@drawn
@given(data=st.data())
def test_what_a_limit_left_out_never_comes_back(data: st.DataObject) -> None:
    history = data.draw(histories(PARTS))
    keys = sorted({entry["key"] for patch in history for entry in patch["value"]})
    assert [part["key"] for part in combined(PARTS, history).get("value", [])] == keys[:3]


@pytest.mark.parametrize("number", [0, 1, 10, 1_000, 5_000, 50_000])
def test_a_sketch_is_right_within_three_standard_errors_and_repeats_change_nothing(number: int) -> None:
    sketch: State = {}
    entries = [register_of(f"customer-{each}") for each in range(number)]
    MONOIDS["sketch"].combine(sketch, {"value": entries})
    found = estimate(sketch.get("value"))
    assert abs(found - number) <= 3 * 1.04 / REGISTERS**0.5 * number
    MONOIDS["sketch"].combine(sketch, {"value": entries[::-3]})
    assert estimate(sketch.get("value")) == found
