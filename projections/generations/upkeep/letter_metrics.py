"""What is measured of dead letters: how many there are of each cause, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.eventlog.letters import cause_of
from headwater.eventlog.ports import EventLog
from headwater.eventlog.topics import DEAD_LETTERS

PLACE: Final = ("topic", "cause")


class _Kind(NamedTuple):
    """What a letter counts as. topic: of the record that could not be processed."""

    topic: str
    cause: str


@dataclass(frozen=True)
class _Found:
    """What one look has found. oldest_ms: since 1970, when the oldest letter of each kind was written."""

    numbers: Mapping[_Kind, int] = field(default_factory=dict)
    oldest_ms: Mapping[_Kind, int] = field(default_factory=dict)


class LetterMetrics(Collector):
    """Reads the topic of dead letters once, and afterwards only what is new in it; keeps a time per letter."""

    def __init__(self, log: EventLog | None = None) -> None:
        """log: None: none is known, only the names of metrics are."""
        self._log = log
        self._next, self._incarnation = 0, ""
        self._written_ms: dict[_Kind, dict[str, int]] = {}
        """By kind and key, when the letter was written first."""
        self._found = _Found()

    @property
    def keys(self) -> list[str]:
        """The keys of all letters, as the last look found them."""
        return [key for letters in self._written_ms.values() for key in letters]

    def look(self) -> None:
        """Read what is new; raises LogUnavailable."""
        if self._log is None:
            return
        self._begin_again_if_replaced(self._log)
        end = self._log.end(DEAD_LETTERS, 0)
        if end == self._next:
            return
        for record in self._log.read(DEAD_LETTERS, 0, self._next, end):
            of_kind = self._written_ms.setdefault(_Kind(record.key.partition("/")[0], cause_of(record.key)), {})
            if record.value is None:
                of_kind.pop(record.key, None)
            else:
                of_kind.setdefault(record.key, record.timestamp_ms)
        self._next = end
        waiting = {kind: times for kind, times in self._written_ms.items() if times}
        self._found = _Found(
            {kind: len(times) for kind, times in waiting.items()},
            {kind: min(times.values()) for kind, times in waiting.items()},
        )

    def _begin_again_if_replaced(self, log: EventLog) -> None:
        """Forget all if the topic was deleted and made again."""
        incarnation = log.incarnation(DEAD_LETTERS)
        if incarnation != self._incarnation:
            self._next, self._incarnation, self._written_ms, self._found = 0, incarnation, {}, _Found()

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        found = self._found
        numbers = GaugeMetricFamily("headwater_dead_letters", "Dead letters that wait for an operator.", labels=PLACE)
        oldest = GaugeMetricFamily(
            "headwater_dead_letters_oldest_timestamp_seconds", "When the oldest of them was written.", labels=PLACE
        )
        for kind, number in found.numbers.items():
            numbers.add_metric(kind, number)
            oldest.add_metric(kind, found.oldest_ms[kind] / 1000)
        yield numbers
        yield oldest
