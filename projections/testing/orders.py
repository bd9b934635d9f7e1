"""Checks that rows do not depend on the order in which parts of a history are combined."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from commands.testing.past import Happened
from projections.table.expressions import Source
from projections.table.monoids import State
from projections.table.reference import finish, is_deleted, lift, states
from projections.table.view import TableView
from projections.testing.rows import sources_of

PARTITIONS: Final = 3
SEED: Final = "HEADWATER_SEED"
"""The environment variable that repeats a random run."""


def check_any_order(view: TableView, *events: Happened, tries: int = 50) -> None:
    """Check that the rows of `view` after `events` do not depend on the order in which patches are combined.

    Streams are in several partitions. `tries` times, the patches are split into random parts, and the parts combined in
    a random order, as loaders and replays do. Raises AssertionError with the rows that differ and the seed; set
    HEADWATER_SEED to it to repeat the run. Raises the errors of `rows_of` for invalid events.
    """
    __tracebackhide__ = True
    seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))
    check_sources(view, sources_of([view], events, PARTITIONS), seed, tries)


def check_sources(view: TableView, sources: Sequence[Source], seed: int, tries: int = 1) -> None:
    """Like `check_any_order`, for events that are already in a log; the same for the same seed."""
    __tracebackhide__ = True
    chance = random.Random(seed)
    expected = _shown(view, states(view, sources))
    for _ in range(tries):
        actual = _shown(view, combined_anyhow(view, sources, chance))
        if actual != expected:
            lines = "\n".join(_differences(expected, actual))
            raise AssertionError(
                f'"{view.name}" has other rows if its events are combined in another order ({SEED}={seed} repeats it)\n'
                + lines
            )


def combined_anyhow(view: TableView, sources: Iterable[Source], chance: random.Random) -> dict[str, State]:
    """The state of every row, its patches stored as JSON and combined in random parts, in a random order."""
    parts = [
        (patch.key, orjson.loads(orjson.dumps(patch.fields))) for source in sources for patch in lift(view, source)
    ]
    chance.shuffle(parts)
    while len(parts) > len({key for key, _ in parts}):
        key, left = parts.pop(0)
        right = next((at for at, (other, _) in enumerate(parts) if other == key), None)
        whole: State = {}
        for part in (left, *([] if right is None else [parts.pop(right)[1]])):
            view.layout.combine(whole, part)
        parts.insert(chance.randrange(len(parts) + 1), (key, whole))
    rows: dict[str, State] = {}
    for key, part in parts:
        view.layout.combine(rows.setdefault(key, {}), part)
    return rows


def _shown(view: TableView, rows: dict[str, State]) -> dict[str, Any]:
    """The visible columns by key; None if the row is deleted."""
    return {key: None if is_deleted(row) else finish(view, key, row) for key, row in rows.items()}


def _differences(expected: dict[str, Any], actual: dict[str, Any]) -> Iterable[str]:
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) != actual.get(key):
            yield f"  {key!r}: in the order of the log {expected.get(key)!r}"
            yield f"  {' ' * len(repr(key))}  in another        {actual.get(key)!r}"
