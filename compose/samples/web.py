"""The sample `web`: visitors who open pages, search, and click on results."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Checked, Domain, ObservedSample, Report, admitted, floor, row_key
from headwater.compose.samples.stored_rows import Rows

FIVE_MINUTES, HOUR, GAP = timedelta(minutes=5), timedelta(hours=1), timedelta(minutes=30)
LATE_AFTER: Final = timedelta(minutes=10)
WATERMARK: Final = LATE_AFTER + timedelta(minutes=2)


def views_per_page(reports: Sequence[Report]) -> Rows:
    """The rows of `page_views`."""
    views = Counter((each.data["page"], floor(each.time, FIVE_MINUTES)) for each in _opened(reports))
    return {
        row_key(page, start): {"page": page, "start": start, "views": number} for (page, start), number in views.items()
    }


def visits(reports: Sequence[Report]) -> Rows:
    """The rows of `visits`, if no visitor opens another page."""
    by_visitor: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
    for each in _opened(reports):
        by_visitor[each.data["visitor"]].append((each.time, each.data["view_id"], each.data["page"]))
    found: Rows = {}
    for visitor, opened in by_visitor.items():
        visit: list[tuple[datetime, str, str]] = []
        for page in sorted(opened):
            if visit and page[0] - visit[-1][0] > GAP:
                visit = []
            visit.append(page)
            (start, _, entry_page), (end, _, exit_page) = visit[0], visit[-1]
            found[row_key(visitor, start)] = {
                "visitor": visitor,
                "start": start,
                "pages": len(visit),
                "seconds": (end - start).total_seconds(),
                "entry_page": entry_page,
                "exit_page": exit_page,
            }
    return found


def click_through(reports: Sequence[Report]) -> Rows:
    """The rows of `click_through`, if nothing else is searched and clicked."""
    clicks: dict[str, list[datetime]] = defaultdict(list)
    for each in admitted(reports, LATE_AFTER):
        if each.type == "result_clicked":
            clicks[each.data["search_id"]].append(each.time)
    searches: dict[tuple[str, datetime], dict[str, bool]] = defaultdict(dict)
    for each in admitted(reports, LATE_AFTER):
        if each.type == "searched":
            name = each.data["search_id"]
            led = any(timedelta() <= clicked - each.time <= HOUR for clicked in clicks[name])
            searches[each.data["query"], floor(each.time, HOUR)][name] = led
    return {
        row_key(query, hour): {
            "query": query,
            "hour": hour,
            "searches": len(led),
            "clicked": sum(led.values()),
            "rate": sum(led.values()) / len(led),
        }
        for (query, hour), led in searches.items()
    }


def visit_is_final(row: Mapping[str, Any]) -> datetime:
    """When the row of a visit is sent."""
    start: datetime = row["start"]
    return start + timedelta(seconds=row["seconds"]) + GAP + WATERMARK


def _opened(reports: Sequence[Report]) -> list[Report]:
    """The pages that were opened; one that browser and server reported, once."""
    found = {each.data["view_id"]: each for each in admitted(reports, LATE_AFTER) if each.type == "page_opened"}
    return list(found.values())


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
    found: list[Report] = []

    def add(kind: str, time: datetime, data: Mapping[str, Any]) -> None:
        delay_s = chance.choice(LATE_S if chance.random() < 0.03 else DELAYS_S)
        report = Report(kind, f"{start:%Y%m%d%H%M%S}-{len(found)}", "browser", time, time, data)
        report = replace(report, recorded=time + timedelta(seconds=delay_s))
        found.append(report)
        if chance.random() < 0.1:
            found.append(replace(report, source="server", recorded=report.recorded + timedelta(seconds=1)))

    for visitor in (f"visitor-{number}" for number in range(10)):
        time = start + timedelta(milliseconds=chance.randrange(60_000))
        while time < start + length:
            name = f"{visitor}-{len(found)}"
            add("page_opened", time, {"view_id": f"view-{name}", "visitor": visitor, "page": chance.choice(PAGES)})
            if chance.random() < 0.4:
                add("searched", time, {"search_id": f"search-{name}", "query": chance.choice(QUERIES)})
                for result in range(chance.choice((0, 1, 1, 2))):
                    clicked = time + timedelta(seconds=chance.choice(CLICKED_AFTER_S))
                    if clicked < start + length:
                        add("result_clicked", clicked, {"search_id": f"search-{name}", "result": result + 1})
            pause_s = chance.choice(LONG_PAUSES_S if chance.random() < 0.15 else PAUSES_S)
            time += timedelta(seconds=pause_s)
    return sorted(found, key=lambda each: each.recorded)


def one_view(name: str, now: datetime) -> Report:
    """One view of a page of its own, named after `name`."""
    data = {"view_id": f"view-{name}", "visitor": f"visitor-{name}", "page": f"/{name}"}
    return Report("page_opened", name, "browser", now, now, data)


WEB_DOMAIN: Final = Domain(
    things="clicks",
    length=timedelta(minutes=5),
    traffic=activity,
    one=one_view,
    late_by=(timedelta(minutes=20), timedelta(hours=8)),
    checked=(
        Checked("page_views", "key", views_per_page),
        Checked("visits", "key", visits, visit_is_final),
        # a search at the end of the hour may be clicked on for another one
        Checked("click_through", "key", click_through, final=lambda row: row["hour"] + 2 * HOUR + WATERMARK),
    ),
)


sample: Final = partial(ObservedSample, WEB_DOMAIN)


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
