"""Checks that rows do not depend on the order in which parts of a history are combined."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, overload

import orjson

from headwater.commands.testing.past import GivenToStream, Happened
from headwater.projections.reading.reference import finish, is_deleted, lift, states
from headwater.projections.stream.declaring.view import StreamView
from headwater.projections.table.expressions import Source
from headwater.projections.table.monoids import State
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import Change, sources_of

SEED: Final = "HEADWATER_SEED"
"""The environment variable that repeats a random run."""

PARTITIONS: Final = 3


def seed_of_run() -> int:
    """What SEED says, or one by chance."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(2**32))


def differences(expected: Mapping[str, Any], actual: Mapping[str, Any], one: str, other: str) -> Iterable[str]:
    """Lines for each key whose rows differ. one, other: how each came about."""
    width = max(len(one), len(other))
    for key in sorted(expected.keys() | actual.keys()):
        if expected.get(key) != actual.get(key):
            yield f"  {key!r}: {one:{width}} {expected.get(key)!r}"
            yield f"  {' ' * len(repr(key))}  {other:{width}} {actual.get(key)!r}"


@overload
def check_any_order(view: TableView, *given: Happened | Change, tries: int | None = None) -> None: ...


@overload
def check_any_order(view: StreamView, *given: GivenToStream, tries: int | None = None) -> None: ...


def check_any_order(view: TableView | StreamView, *given: Any, tries: int | None = None) -> None:
    """Check that the rows of `view` do not depend on how what was given is combined.

    Of a table view, streams are in several partitions. `tries` times (50), the patches are split into random parts, and
    the parts combined in a random order, as loaders and replays do. A stream view reads its records `tries` times (3)
    in random batches, and must have the rows that it has after one. Raises AssertionError with the rows that differ and
    the seed; set HEADWATER_SEED to it to repeat the run. Raises the errors of `rows_of` for invalid events.
    """
    __tracebackhide__ = True
    if isinstance(view, StreamView):
        from headwater.projections.testing import streams  # noqa: PLC0415 - Spark

        streams.check_batches(view, given, seed_of_run(), streams.TRIES if tries is None else tries)
    else:
        check_sources(view, sources_of([view], given, PARTITIONS), seed_of_run(), 50 if tries is None else tries)


def check_sources(view: TableView, sources: Sequence[Source], seed: int, tries: int = 1) -> None:
    """Like `check_any_order`, for events that are already in a log; the same for the same seed."""
    __tracebackhide__ = True
    chance = random.Random(seed)
    expected = _shown(view, states(view, sources))
    for _ in range(tries):
        actual = _shown(view, combined_anyhow(view, sources, chance))
        if actual != expected:
            lines = "\n".join(differences(expected, actual, "in the order of the log", "in another"))
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
    if view.layout.retraction is not None:
        groups = filter(None, map(view.layout.retraction.group, list(rows.values())))
        for key, added in groups:
            view.layout.combine(rows.setdefault(key, {}), added)
    return rows


def _shown(view: TableView, rows: dict[str, State]) -> dict[str, Any]:
    """The visible columns by key; None if the row is deleted. A group without members may never have been a row."""
    if view.layout.retraction is not None:
        rows = {key: row for key, row in rows.items() if not is_deleted(row)}
    return {key: None if is_deleted(row) else finish(view, key, row) for key, row in rows.items()}
