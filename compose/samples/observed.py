"""A sample of observations in `headwater run`: its reports, some of them late, some sent twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headwater.compose.samples.sample import Request, Sample

SEED: Final = 1
LATE_PER: Final = 20
"""One of so many reports is late."""
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
        report_ = replace(report, recorded=report.time + timedelta(seconds=delay_s))
        again = replace(report_, recorded=report_.recorded + timedelta(seconds=1))
        return [report_, again] if chance.random() < SENT_TWICE else [report_]


@dataclass(frozen=True)
class ReportTraffic:
    """What a sample of observations sends.

    reports: from a time on, for a length of time. length: shorter than any view's `late_after`.
    late_by: how much later some are sent. awaited: its views whose rows come at once.
    """

    length: timedelta
    reports: Callable[[random.Random, datetime, timedelta], list[Report]]
    late_by: Sequence[timedelta]
    awaited: Sequence[str] = ()

    def sent_at(self, now: datetime) -> list[Report]:
        """Reports of the time before `now`, delivered at once, some of them late."""
        late, chance = dict[tuple[str, str], timedelta](), random.Random(SEED)
        found = []
        for report in self.reports(random.Random(SEED), now - self.length, self.length):
            same = (report.type, report.id)  # two sources may report the same
            if same not in late:
                late[same] = timedelta() if chance.randrange(LATE_PER) else chance.choice(self.late_by)
            found.append(replace(report, time=report.time - late[same], recorded=now))
        return found


class ObservedSample(Sample):
    """One round of reports, whose traffic ends now."""

    def __init__(self, traffic: ReportTraffic) -> None:
        self.traffic = traffic
        # an answer that there is no such row says as well that the view has the reports
        self.rows = dict.fromkeys(traffic.awaited, "any")

    def loading(self) -> Sequence[Sequence[Request]]:
        now = datetime.now(UTC).replace(microsecond=0)
        return [[report.request for report in self.traffic.sent_at(now)]]
