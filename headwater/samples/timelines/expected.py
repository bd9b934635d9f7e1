"""The rows of the views of timelines, computed apart from Headwater."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from headwater.compose.samples.report import Report, admitted, row_key
from headwater.compose.samples.stored_rows import Rows

LATE_AFTER: Final = timedelta(minutes=1)
NEWEST: Final = 50


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
