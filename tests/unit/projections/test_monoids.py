"""Every monoid is associative, has null as its identity, and combines alike in Python and in PostgreSQL's words."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.monoids import Extreme, Monoid, Pick, State, StateField, Sum, Tally
from projections.types import ColumnType

ORDER = StateField("_order", ColumnType.INTEGER, ordering=True)
VALUE, OTHER = StateField("value", ColumnType.INTEGER), StateField("other", ColumnType.TEXT)
LAST, FIRST = Pick(ORDER, (VALUE, OTHER), highest=True), Pick(ORDER, (VALUE, OTHER), highest=False)
MONOIDS: Mapping[str, Monoid] = {
    "last": LAST,
    "first": FIRST,
    "sum": Sum(VALUE),
    "maximum": Extreme(VALUE, highest=True),
    "minimum": Extreme(VALUE, highest=False),
    "tally": Tally(VALUE),
}
NUMBERS = st.integers(-(2**40), 2**40)


def patches(monoid: Monoid) -> st.SearchStrategy[State]:
    """What one event brings; two events never have the same ordering key, for that is a place in the log."""
    if isinstance(monoid, Pick):
        return st.fixed_dictionaries({"value": st.none() | NUMBERS, "other": st.none() | st.text(max_size=3)})
    if isinstance(monoid, Tally):
        entry = st.fixed_dictionaries({"v": st.integers(0, 3), "n": st.sampled_from([1, -1])})
        return st.fixed_dictionaries({"value": st.lists(entry, max_size=3)})
    return st.fixed_dictionaries({"value": st.none() | NUMBERS})


@st.composite
def histories(draw: st.DrawFn, monoid: Monoid) -> list[State]:
    drawn = draw(st.lists(patches(monoid), max_size=8))
    if isinstance(monoid, Pick):
        orders = draw(st.permutations(range(len(drawn))))
        return [patch | {"_order": order} for patch, order in zip(drawn, orders, strict=True)]
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
@given(data=st.data())
def test_the_order_of_arrival_never_shows(monoid: Monoid, data: st.DataObject) -> None:
    history = data.draw(histories(monoid))
    other = data.draw(st.permutations(history))
    assert shown(monoid, combined(monoid, history)) == shown(monoid, combined(monoid, list(other)))


@pytest.mark.parametrize("monoid", MONOIDS.values(), ids=list(MONOIDS))
@given(data=st.data())
def test_a_patch_is_left_as_it_was(monoid: Monoid, data: st.DataObject) -> None:
    history = data.draw(histories(monoid))
    before = deepcopy(history)
    row: State = {}
    for patch in history:
        monoid.combine(row, patch)
    assert history == before


def test_a_tally_takes_back_and_drops_what_is_held_no_more() -> None:
    tally, row = Tally(VALUE), {}
    tally.combine(row, {"value": [{"v": 350, "n": 1}, {"v": 360, "n": 1}]})
    tally.combine(row, {"value": [{"v": 350, "n": -1}]})
    assert row == {"value": {"360": 1}}
    tally.combine(row, {"value": {"360": -1}})
    assert row == {"value": {}}
