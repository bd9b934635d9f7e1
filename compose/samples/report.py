"""A report of an observation, and the keys of rows in stream views, computed apart from Headwater."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headwater.compose.samples.sample import Request

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SENT_TWICE: Final = 0.05
"""The share of reports that are sent again, a second later."""


@dataclass(frozen=True)
class Report:
    """One observation. time: when it was observed. recorded: when it is accepted. Both have whole milliseconds."""

    type: str
    id: str
    source: str
    time: datetime
    recorded: datetime
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What identifies it among all observations."""
        return f"{self.type}/{self.source}/{self.id}"

    @property
    def request(self) -> Request:
        """The request that reports it."""
        body = {"id": self.id, "source": self.source, "time": self.time.isoformat(), "data": dict(self.data)}
        return Request(self.type, body, is_observation=True)


@dataclass(frozen=True)
class Delays:
    """How long after its time a report is accepted, in seconds. late_share: of reports with one of `late_s`."""

    usual_s: Sequence[float]
    late_s: Sequence[float]
    late_share: float

    def accepted(self, chance: random.Random, report: Report) -> list[Report]:
        """The report with the time of its acceptance; twice if it is sent again."""
        delay_s = chance.choice(self.late_s if chance.random() < self.late_share else self.usual_s)
        found = replace(report, recorded=report.time + timedelta(seconds=delay_s))
        again = replace(found, recorded=found.recorded + timedelta(seconds=1))
        return [found, again] if chance.random() < SENT_TWICE else [found]


def admitted(reports: Iterable[Report], limit: timedelta) -> Iterator[Report]:
    """Each report that is not later than `limit`, in the order of acceptance; one that was sent again, once."""
    seen = set[str]()
    for report in sorted(reports, key=lambda each: each.recorded):
        if report.recorded - report.time <= limit and report.name not in seen:
            seen.add(report.name)
            yield report


def floor(time: datetime, length: timedelta) -> datetime:
    """The start of the window of this length that `time` is in."""
    return time - (time - EPOCH) % length


def row_key(*columns: str | datetime) -> str:
    """The text of a row's key with several columns."""
    texts = (time_text(each) if isinstance(each, datetime) else each for each in columns)
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in texts)


def time_text(time: datetime) -> str:
    """A time in a row's key."""
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"
