"""The sample `timelines`: posts of authors, and readers who follow them, and stop."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from headwater.compose.samples.observed import Checked, Domain, ObservedSample
from headwater.compose.samples.report import Report

from .expected import timelines

AUTHORS: Final = ("ada", "ada", "ada", "ada", "b/ob", "cleo", "50% dan")
READERS: Final = (*sorted(set(AUTHORS)), "eve", "finn", "gus")
KINDS: Final = ("post_written",) * 6 + ("author_followed",) * 3 + ("author_unfollowed", "post_deleted")
DELAYS_S: Final = (0.0, 0.0, 0.5, 5.0, 60.0)
LATE_S: Final = (60.001, 600.0)


def posts(chance: random.Random, start: datetime, length: timedelta) -> list[Report]:
    """Posts and follows from `start` for `length`, in the order of acceptance; some are late, some are sent twice."""
    found: list[Report] = []
    time = start
    while time < start + length:
        author, kind = chance.choice(AUTHORS), chance.choice(KINDS)
        name = f"{start:%Y%m%d%H%M%S}-{len(found)}"
        data = {"author": author}
        if kind == "post_written":
            data |= {"post": f"post-{name}", "text": f"This is {name}."}
        elif kind == "post_deleted":
            written = [each.data["post"] for each in found if each.type == "post_written"][-20:]
            data |= {"post": chance.choice([*written, "none"])}
        else:
            data |= {"reader": chance.choice(READERS)}
        delay_s = chance.choice(LATE_S if chance.random() < 0.03 else DELAYS_S)
        report = Report(kind, name, f"app-{chance.randrange(3)}", time, time + timedelta(seconds=delay_s), data)
        found.append(report)
        if chance.random() < 0.05:
            found.append(replace(report, recorded=report.recorded + timedelta(seconds=1)))
        time += timedelta(milliseconds=chance.choice((0, 100, 400, 2_000)))
    return sorted(found, key=lambda each: each.recorded)


def one_post(name: str, now: datetime) -> Report:
    """One post, of an author of its own, who sees it."""
    return Report("post_written", name, "app", now, now, {"author": name, "post": name, "text": "Hello."})


TIMELINE_DOMAIN: Final = Domain(
    things="posts",
    length=timedelta(seconds=50),
    traffic=posts,
    one=one_post,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
    checked=(Checked("home_timelines", "key", timelines),),
)


def sample() -> ObservedSample:
    """What `run` and `demo` send, and check."""
    return ObservedSample(TIMELINE_DOMAIN)


TO_TRY: Final[tuple[tuple[str, str], ...]] = (
    (
        "the timeline of a reader",
        "curl -sS '{api}/views/home_timelines?reader=eve&sort=-written_at&limit=3'",
    ),
    (
        "write a post, which you see",
        "curl -sS -X POST {api}/observations/post_written -H 'content-type: application/json' "
        '-d \'{{"id": "mine-1", "source": "me", "data": {{"post": "mine-1", "author": "me", "text": "Hello."}}}}\'',
    ),
    (
        "follow another author",
        "curl -sS -X POST {api}/observations/author_followed -H 'content-type: application/json' "
        '-d \'{{"id": "mine-2", "source": "me", "data": {{"reader": "me", "author": "ada"}}}}\'',
    ),
    ("your timeline", "curl -sS '{api}/views/home_timelines?reader=me&sort=-written_at&limit=3'"),
)
"""What each does, and its command."""
