"""The sample `web`, checked: the rows that must follow from its reports, computed apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from headwater.compose.samples.observed import Report
from headwater.compose.samples.web import TRAFFIC
from tests.samples.observed import Checked, CheckedObserved, Domain, admitted, floor, row_key
from tests.samples.stored_rows import Rows

FIVE_MINUTES, HOUR, GAP = timedelta(minutes=5), timedelta(hours=1), timedelta(minutes=30)
LATE_AFTER: Final = timedelta(minutes=10)
WATERMARK: Final = LATE_AFTER + timedelta(minutes=2)


def views_per_page(reports: Sequence[Report]) -> Rows:
    """The rows of `page_views`."""
    views = Counter((report.data["page"], floor(report.time, FIVE_MINUTES)) for report in _opened(reports))
    return {
        row_key(page, start): {"page": page, "start": start, "views": number} for (page, start), number in views.items()
    }


def visits(reports: Sequence[Report]) -> Rows:
    """The rows of `visits`, if no visitor opens another page."""
    by_visitor: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
    for report in _opened(reports):
        by_visitor[report.data["visitor"]].append((report.time, report.data["view_id"], report.data["page"]))
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
    for report in admitted(reports, LATE_AFTER):
        if report.type == "result_clicked":
            clicks[report.data["search_id"]].append(report.time)
    searches: dict[tuple[str, datetime], dict[str, bool]] = defaultdict(dict)
    for report in admitted(reports, LATE_AFTER):
        if report.type == "searched":
            name = report.data["search_id"]
            led = any(timedelta() <= clicked - report.time <= HOUR for clicked in clicks[name])
            searches[report.data["query"], floor(report.time, HOUR)][name] = led
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
    found = {report.data["view_id"]: report for report in admitted(reports, LATE_AFTER) if report.type == "page_opened"}
    return list(found.values())


def one_view(name: str, now: datetime) -> Report:
    """One view of a page of its own, named after `name`."""
    data = {"view_id": f"view-{name}", "visitor": f"visitor-{name}", "page": f"/{name}"}
    return Report("page_opened", name, "browser", now, now, data)


WEB_DOMAIN: Final = Domain(
    things="clicks",
    traffic=TRAFFIC,
    one=one_view,
    checked=(
        Checked("page_views", "key", views_per_page),
        Checked("visits", "key", visits, visit_is_final),
        # a search at the end of the hour may be clicked on for another one
        Checked("click_through", "key", click_through, final=lambda row: row["hour"] + 2 * HOUR + WATERMARK),
    ),
)


sample: Final = partial(CheckedObserved, WEB_DOMAIN)
