"""Everything of a deployment that can be late, stuck or dead: `headwater status` and the console show it.

It needs neither Spark nor a library of command lines.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from headwater.commands.owning.running_code import slow_code
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import EventLog, topic_ends
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS
from headwater.projections.generations.upkeep.lag import Lag, Looks, Moves
from headwater.projections.generations.upkeep.lag_reader import last_time

OWNED_S: Final = 15.0
"""An owner of a partition appends something every 5 s; a takeover takes about 6 s."""
FINE: Final = ("caught up", "behind")
"""States of views that need no attention."""
LOOK_S: Final = 0.3

Fault = Literal["", "nobody", "live query", "stream query", "loader", "store", "log", "owner", "source"]
"""The part at fault; nobody: an operator must do something, although all parts work. Empty: nothing is wrong."""

_COMMAND: Final = re.compile(r"`((?:headwater|replay) [^`]+)`")


@dataclass(frozen=True)
class Part:
    """The state of one part.

    what: the kind of part. name: which one. state: in words. problem: what is wrong, with what helps; else empty.
    fault: whose fault that is.
    """

    what: str
    name: str
    state: str
    problem: str = ""
    fault: Fault = ""

    @property
    def command(self) -> str:
        """The command that helps, as `problem` names it; empty if it names none."""
        command_match = _COMMAND.search(self.problem)
        return command_match[1] if command_match else ""


@dataclass
class Checks:
    """Several checks of the same views.

    views: those to check, with the seconds that pass between two batches of their own queries. now: a clock in seconds.
    """

    lags: Looks
    views: Mapping[str, float]
    now: Callable[[], float] = time.monotonic
    _moves: Moves = field(default_factory=Moves)

    def look(self) -> list[Lag]:
        """One check."""
        lags, ends, at = self.lags.look(), self.lags.ends(), self.now()
        return self._moves.judged([lag for lag in lags if lag.view in self.views], ends, at, self.views)

    def ends(self) -> dict[str, int]:
        """The end of each source."""
        return self.lags.ends()

    def settled(self, sleep: Callable[[float], None] = time.sleep) -> list[Lag]:
        """Check until each view that is behind has made progress, or has made none for too long."""
        parts = self.look()
        while self._moves.undecided:
            sleep(LOOK_S)
            parts = self.look()
        return parts


def partitions(log: EventLog) -> Iterator[Part]:
    """Whether partitions have owners: a handler that works appends heartbeats. Raises LogUnavailable."""
    for partition, end in topic_ends(log, EVENTS, range(log.partitions)).items():
        last_ms = last_time(log, str(partition), end)
        age_s = None if last_ms is None else (now_ms() - last_ms) / 1000
        if age_s is not None and age_s <= OWNED_S:
            yield Part("partition", str(partition), f"owned, {age_s:.1f} s ago")
            continue
        since = "never had a record" if age_s is None else f"had no record for {age_s:.0f} s"
        problem = f"it {since}, so no handler owns it, and its commands wait: start `headwater handler`, or see its log"
        yield Part("partition", str(partition), "not owned", problem, "owner")


def hanging_code(log: EventLog) -> Iterator[Part]:
    """Commands and events whose code does not return. Raises LogUnavailable."""
    for problem in slow_code(log, now_ms()):
        yield Part("code", "hanging", "slow", problem, "owner")


def view_part(lag: Lag) -> Part:
    """A view in a store, as `replay status` shows it."""
    behind = "" if not lag.lag_events else f", {lag.lag_events:,} events behind"
    needs = "" if lag.standing in FINE else f"run `replay status {lag.view}`"
    problem = lag.problem or needs
    return Part("view", f"{lag.view} in {lag.store}", f"{lag.standing}{behind}", problem, lag.fault if problem else "")


def letters(keys: Iterable[str]) -> Iterator[Part]:
    """Dead letters, by the topic of their records. keys: of all letters."""
    for topic, number in Counter(key.partition("/")[0] for key in keys).items():
        help_ = "see `replay dead-letters list`; after a fix, `replay dead-letters retry`"
        problem = f"{number:,} records could not be processed: {help_}"
        yield Part("letters", topic, f"{number:,}", problem, "nobody")


def letters_of(log: EventLog, *, start: int = 0, max_bytes: int | None = None) -> dict[str, Letter]:
    """The letters by key; a later one replaces an earlier one, and a tombstone removes it. Raises LogUnavailable.

    start: the offset from which they are read. max_bytes: of the records of all letters together; the earliest ones are
    left out. None: any number.
    """
    letter_by_key: dict[str, Letter] = {}
    sizes: dict[str, int] = {}
    for record in log.read(DEAD_LETTERS, 0, start):
        letter_by_key.pop(record.key, None)
        sizes.pop(record.key, None)
        if record.value is None:
            continue
        letter_by_key[record.key], sizes[record.key] = Letter.from_json(record.value), len(record.value)
        while max_bytes is not None and len(letter_by_key) > 1 and sum(sizes.values()) > max_bytes:
            earliest = next(iter(letter_by_key))
            del letter_by_key[earliest], sizes[earliest]
    return letter_by_key
