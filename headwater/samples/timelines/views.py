"""The posts that each reader sees: their own, and those of the authors that they follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headwater import BOOLEAN, TEXT, TIME, UNCHANGED, Cache, Postgres, StreamView, in_order, observations

from .domain import AuthorFollowed, AuthorUnfollowed, PostDeleted, PostWritten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEWEST: Final = 50
"""So many posts of an author are in timelines; so the newest posts of a reader, up to as many, are all there."""
COLUMNS = {"reader": TEXT, "post": TEXT, "author": TEXT, "text": TEXT, "written_at": TIME}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def seen_posts(reports: DataFrame) -> DataFrame:
    """A row per reader and post."""
    return in_order(
        reports,
        key="author",
        step=fan_out,
        columns={**COLUMNS, "gone": BOOLEAN},
        forget_after="3650d",
        early=("reader", "author", "post"),
        deleted_by="gone",
    )


def fan_out(state: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The state is the followers of an author, and the newest posts by id, as `[microseconds since 1970, text]`."""
    followers, posts = state or [{}, {}]
    readers = [row.author, *followers]
    match row.type:
        case AuthorFollowed.type if row.reader not in readers:
            followers[row.reader] = 1
            return [followers, posts], [shown(row, row.reader, post, values) for post, values in posts.items()]
        case AuthorUnfollowed.type if row.reader in followers:
            del followers[row.reader]
            return [followers, posts], [gone(row, row.reader, post) for post in posts]
        case PostWritten.type if row.post not in posts:
            posts[row.post] = [(row.time - EPOCH) // MICROSECOND, row.text]
            rows = [shown(row, reader, row.post, posts[row.post]) for reader in readers]
            if len(posts) > NEWEST:
                oldest = next(iter(posts))
                del posts[oldest]
                rows += [gone(row, reader, oldest) for reader in readers]
            return [followers, posts], rows
        case PostDeleted.type if row.post in posts:
            del posts[row.post]
            return [followers, posts], [gone(row, reader, row.post) for reader in readers]
        case _:
            return UNCHANGED, []


def shown(row: Any, reader: str, post: str, values: list[Any]) -> dict[str, Any]:
    """The row of a post."""
    written_us, text = values
    known = {"reader": reader, "author": row.author, "post": post, "text": text}
    return {**known, "written_at": EPOCH + written_us * MICROSECOND, "gone": False}


def gone(row: Any, reader: str, post: str) -> dict[str, Any]:
    """The row of a post that the reader does not see any more."""
    known = {"reader": reader, "author": row.author, "post": post}
    return {**known, "text": None, "written_at": None, "gone": True}


home_timelines = StreamView(
    name="home_timelines",
    key=("reader", "author", "post"),
    columns=COLUMNS,
    sources={
        "reports": observations(AuthorFollowed, AuthorUnfollowed, PostWritten, PostDeleted, late_after="1m"),
    },
    deleted_by="gone",
    stores=(Postgres(indexes=(("reader", "-written_at"),)), Cache()),
    query=seen_posts,
    doc="what each reader sees; sort by -written_at for the timeline of one",
)
