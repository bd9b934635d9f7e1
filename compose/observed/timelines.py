"""The sample domain `timelines`: posts of authors, and readers who follow them, and stop."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from compose.observed.report import Report, admitted, row_key
from compose.observed.sample import Checked, Domain
from compose.stored_rows import Rows

AUTHORS: Final = ("ada", "ada", "ada", "ada", "b/ob", "cleo", "50% dan")
READERS: Final = (*sorted(set(AUTHORS)), "eve", "finn", "gus")
KINDS: Final = ("post_written",) * 6 + ("author_followed",) * 3 + ("author_unfollowed", "post_deleted")
DELAYS_S: Final = (0.0, 0.0, 0.5, 5.0, 60.0)
LATE_S: Final = (60.001, 600.0)
LATE_AFTER: Final = timedelta(minutes=1)
NEWEST: Final = 50


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


def timelines(reports: Sequence[Report]) -> Rows:
    """The rows of `home_timelines`."""
    followed: dict[str, dict[str, bool]] = defaultdict(dict)
    written: dict[str, list[Report]] = defaultdict(list)
    for each in sorted(admitted(reports, LATE_AFTER), key=lambda each: (each.time, each.name)):
        author, data = each.data["author"], each.data
        if each.type == "post_written":
            written[author] = [*written[author], each][-NEWEST:]
        elif each.type == "post_deleted":
            written[author] = [post for post in written[author] if post.data["post"] != data["post"]]
        else:
            followed[author][data["reader"]] = each.type == "author_followed"
    found: Rows = {}
    for author, seen in written.items():
        readers = {author, *(reader for reader, follows in followed[author].items() if follows)}
        for post in seen:
            for reader in readers:
                row = {"reader": reader, **post.data, "written_at": post.time}
                found[row_key(reader, author, post.data["post"])] = row
    return found


TIMELINE_DOMAIN: Final = Domain(
    things="posts",
    length=timedelta(seconds=50),
    traffic=posts,
    one=one_post,
    late_by=(timedelta(minutes=5), timedelta(hours=8)),
    checked=(Checked("home_timelines", "key", timelines),),
)
