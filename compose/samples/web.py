"""The sample `web`: visitors who open pages, search, and click on results."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import ObservedSample, Report, ReportTraffic

PAGES: Final = ("/", "/tea", "/tea/green", "/about", "/basket", "/50%-off")
QUERIES: Final = ("tea", "green tea", "pot/cup", "")
PAUSES_S: Final = (0.0, 0.5, 3.0, 10.0, 40.0, 90.0, 600.0)
LONG_PAUSES_S: Final = (1_799.999, 1_800.0, 1_800.001, 5_400.0)
"""At most 30 minutes are one visit."""
CLICKED_AFTER_S: Final = (-0.001, 0.0, 2.0, 60.0, 3_600.0, 3_600.001)
"""A click counts from 0 s to an hour after the search."""
DELAYS_S: Final = (0.0, 0.0, 0.2, 30.0, 599.0, 600.0)
LATE_S: Final = (600.001, 7_200.0)


def activity(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """What visitors do from `start` for `length`, in the order of acceptance: some late, some reported twice."""
    reports: list[Report] = []

    def add(kind: str, time: datetime, data: Mapping[str, Any]) -> None:
        delay_s = chance.choice(LATE_S if chance.random() < 0.03 else DELAYS_S)
        report = Report(kind, f"{start:%Y%m%d%H%M%S}-{len(reports)}", "browser", time, time, data)
        report = replace(report, recorded=time + timedelta(seconds=delay_s))
        reports.append(report)
        if chance.random() < 0.1:
            reports.append(replace(report, source="server", recorded=report.recorded + timedelta(seconds=1)))

    for visitor in (f"visitor-{number}" for number in range(10)):
        time = start + timedelta(milliseconds=chance.randrange(60_000))
        while time < start + length:
            name = f"{visitor}-{len(reports)}"
            add("page_opened", time, {"view_id": f"view-{name}", "visitor": visitor, "page": chance.choice(PAGES)})
            if chance.random() < 0.4:
                add("searched", time, {"search_id": f"search-{name}", "query": chance.choice(QUERIES)})
                for result in range(chance.choice((0, 1, 1, 2))):
                    clicked = time + timedelta(seconds=chance.choice(CLICKED_AFTER_S))
                    if clicked < start + length:
                        add("result_clicked", clicked, {"search_id": f"search-{name}", "result": result + 1})
            pause_s = chance.choice(LONG_PAUSES_S if chance.random() < 0.15 else PAUSES_S)
            time += timedelta(seconds=pause_s)
    return sorted(reports, key=lambda report: report.recorded)


TRAFFIC: Final = ReportTraffic(
    length=timedelta(minutes=5),
    reports=activity,
    late_by=(timedelta(minutes=20), timedelta(hours=8)),
    awaited=("page_views",),
)
sample: Final = partial(ObservedSample, TRAFFIC)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    ("views of each page, per 5 minutes", "curl -sS '{api}/views/page_views?sort=-start,-views&limit=5'"),
    (
        "open a page",
        "curl -sS -X POST {api}/observations/page_opened -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", '
        '"data": {{"view_id": "mine-1", "visitor": "me", "page": "/tea"}}}}\'',
    ),
    ("its views", "curl -sS '{api}/views/page_views?page=/tea&sort=-start&limit=3'"),
    ("visits, which end after 30 minutes without a page", "curl -sS '{api}/views/visits?sort=-start&limit=5'"),
    ("clicks per search, two hours later", "curl -sS '{api}/views/click_through?sort=-hour,-rate&limit=5'"),
)
"""What each does, and its command."""
