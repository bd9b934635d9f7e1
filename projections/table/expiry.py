"""When rows expire: `expires={"seen_at": "30d"}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from headwater.eventlog.declaring import meant, must_be_text
from headwater.projections.durations import duration
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.lookups import Lookup
from headwater.projections.table.mistaken import must_be, refuse_first
from headwater.projections.table.types import ColumnType, format_time

EXAMPLE: Final = 'expires={"seen_at": "30d"}'
TIMES: Final = (ColumnType.TIME, ColumnType.DATE)
LONGEST: Final = timedelta(days=36_500)
REMOVED_LATER: Final = timedelta(days=1)
"""After a row expired for good. Until then, whoever compares generations, or has a clock that is late, finds it."""


@dataclass(frozen=True)
class Expiry:
    """A row is expired once its time plus `after` has come; a day counts as its midnight in UTC, null as no end.

    column: with the time. kind: of the column, TIME or DATE. is_final: it is a part of the key, so that no event can
    change it, and a row that expired is gone for good: it is removed from all stores.
    """

    column: str
    after: timedelta
    kind: ColumnType
    is_final: bool = False

    def bound(self, now: datetime) -> datetime | date:
        """The last value of the column with which a row is expired at a time."""
        bound = now.astimezone(UTC) - self.after
        return (
            bound.date() if self.kind is ColumnType.DATE else bound - timedelta(microseconds=bound.microsecond % 1000)
        )

    def has_come(self, value: str | None, now: datetime) -> bool:
        """Whether a row with this value of the column, as rows have it, is expired at a time."""
        if value is None:
            return False
        bound = self.bound(now)
        # as texts, times and days are in their order
        return value <= (format_time(bound) if isinstance(bound, datetime) else bound.isoformat())

    def last_removed(self, now: datetime) -> date | None:
        """The last day of the column whose rows are removed at a time; None if none are removed."""
        if not self.is_final:
            return None
        bound = self.bound(now - REMOVED_LATER)
        return bound.date() if isinstance(bound, datetime) else bound


def check_expires(
    expires: Any,
    types: Mapping[str, ColumnType],
    looked_up: Mapping[str, Lookup],
    stores: Sequence[DeclaredStore],
) -> None:
    """Raise ValueError, which says what to write instead, if rows cannot expire so."""
    expires = must_be(Mapping, expires, f"expires={{}} does not say by which column: write {EXAMPLE}")
    if not expires:
        return
    if len(expires) > 1:
        raise ValueError(f"expires names {len(expires)} columns, but a row has one time to expire by: write {EXAMPLE}")
    ((column, after),) = expires.items()
    must_be_text("the column of expires", column, EXAMPLE)
    times = [name for name, kind in types.items() if kind in TIMES]
    use = f"use one of {', '.join(times)}" if times else 'add one, as in "seen_at": last({Seen: envelope("time")})'
    if column in looked_up:
        there = looked_up[column].view
        raise ValueError(f'expires names "{column}", which is looked up in "{there}", not stored in the row: {use}')
    if column not in types:
        raise ValueError(f"expires names the unknown column {meant(column, types)}: {use}")
    if types[column] not in TIMES:
        raise ValueError(f'expires names "{column}", which is {types[column].value} and no time or date: {use}')
    try:
        lasts = duration(after)
    except ValueError as error:
        raise ValueError(f'expires of "{column}": {error}') from error
    if lasts > LONGEST:
        raise ValueError(f'expires of "{column}" is longer than {LONGEST.days} days: leave it out, and rows stay')
    # rows expire without a patch, so nothing but a query by their time finds those that did
    refuse_first(
        {
            "rows that expire make no records, so that whoever reads the topic would keep them: leave out Topic(), or "
            f'expires; programs that read the topic have "{column}", and can compare it themselves': any(
                not store.answers for store in stores
            ),
            "rows that expire would stay in the rankings of Cache(…): leave out rankings, and let Postgres() sort, "
            "with an index as in "
            f'Postgres(indexes=(("-cents",),)); or leave out expires, and filter by "{column}"': any(
                getattr(store, "rankings", ()) for store in stores
            ),
            f'nothing finds rows of Cache() by "{column}", so that followers would not get to know which expired: add '
            "Postgres() or Elasticsearch()": not any(store.finds for store in stores if store.answers),
        }
    )
