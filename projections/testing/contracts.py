"""Tests that every view must pass, for pytest; needs the extra `testing`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.programs.modules import find
from headwater.projections.folding.reference import fold
from headwater.projections.kinds import KINDS
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.table.view import TableView
from headwater.projections.testing.histories import PARTITIONS, History, history
from headwater.projections.testing.orders import check_sources

LENGTH: Final = 40
"""The length of a random history, in events."""

Checked = Callable[..., None]


def contracts_of_views(*modules: str) -> type:
    """A class of tests for all views that `modules` declare.

        TestViews = contracts_of_views("bank.views")

    With random histories of the events that each view handles, the tests check that rows do not depend on the order in
    which parts of a history are combined, and that a loader that sometimes starts again writes the rows of a replay.

    modules: as in HEADWATER_MODULES; sub-modules are included. For a view of EVERY event, also name modules that
    declare aggregates. The hypothesis profile sets the number of histories.

    Raises UnknownModule or ModuleBroken if a module cannot be imported, ViewDeclarationError if a declaration is wrong,
    and ValueError if there is no view, or no event for one.
    """
    registry = ViewRegistry([each for kind in KINDS for each in find(modules, kind)])
    views = {view.name: view for view in registry.of_kind(TableView)}
    if not views:
        raise ValueError(f"no view in {', '.join(modules) or 'no module'}: name modules that declare views")
    every = list(CommandRegistry.load(modules).events.values())
    plans = {name: view.plan for name, view in views.items()}
    events = {name: every if plan.handles_every else list(plan.events.values()) for name, plan in plans.items()}
    if lacking := [name for name, found in events.items() if not found]:
        raise ValueError(f'"{lacking[0]}" handles every event: also name modules that declare aggregates')

    def test_any_order_makes_the_same_rows(view: TableView, seed: int) -> None:
        check_sources(view, drawn(view, events[view.name], seed).sources, seed)

    def test_live_rows_equal_a_replays(view: TableView, seed: int) -> None:
        live_equals_replay(view, drawn(view, events[view.name], seed), seed)

    of_views = pytest.mark.parametrize("view", views.values(), ids=views)
    tests = (test_any_order_makes_the_same_rows, test_live_rows_equal_a_replays)
    return type("Contracts", (), {test.__name__: staticmethod(of_views(_with_seeds(test))) for test in tests})


def _with_seeds(test: Checked) -> Checked:
    # a smaller seed makes no simpler history
    phases = [each for each in settings().phases if each not in (Phase.shrink, Phase.explain)]
    relaxed = settings(deadline=None, phases=phases, suppress_health_check=[HealthCheck.too_slow])
    return relaxed(given(seed=st.integers(0, 2**32 - 1))(test))


def drawn(view: TableView, events: Sequence[type[Event]], seed: int) -> History:
    """A random history of a view, the same for the same seed."""
    return history(view, events, seed, LENGTH)


def live_equals_replay(view: TableView, happened: History, seed: int) -> None:
    """Raises AssertionError if loading the patches in batches of any size gives other rows than a replay."""
    target, store = Target(view, 1), MemoryStore(Memory())
    store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
    load(store, target, happened, random.Random(seed))
    assert store.rows(target) == fold(view, happened.sources)


def load(store: ViewStore, target: Target, happened: History, chance: random.Random) -> None:
    """Load to the end in batches of any size; sometimes go back, as a loader does after its partition moved."""
    at = {partition: ledger.next_offset for partition, ledger in store.ledgers(target).items()}
    while any(at[each] < len(happened.patches[each]) for each in at):
        if chance.random() < 0.1:
            at = {partition: chance.randrange(offset + 1) for partition, offset in at.items()}
        ends = {each: at[each] + chance.randrange(1, 30) for each in at if chance.random() < 0.7}
        store.apply([target], {each: happened.batch(each, at[each], end) for each, end in ends.items()})
        at |= {each: min(end, len(happened.patches[each])) for each, end in ends.items()}
