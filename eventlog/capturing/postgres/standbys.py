"""Whether a standby of a captured PostgreSQL server has, or had, all changes that are captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import psycopg

from headwater.eventlog.capturing.ports import Server
from headwater.eventlog.capturing.postgres.checks import with_old_rows
from headwater.eventlog.capturing.postgres.database import CapturedDatabase
from headwater.eventlog.capturing.postgres.positions import lsn_text, read_lsn
from headwater.eventlog.capturing.postgres.rows import read_apart
from headwater.eventlog.capturing.postgres.sql import STANDBYS

AWAITED_VERSION: Final = 17
"""PostgreSQL from this version on can let logical slots wait for standbys."""


@dataclass(frozen=True, slots=True)
class Standbys:
    """The standbys that a server knows by their slots.

    awaited: slots that logical slots wait for. physical: all slots of standbys, each with whether it is in use.
    commits_wait: whether commits wait for standbys, and are not visible meanwhile.
    """

    version: int
    awaited: tuple[str, ...]
    physical: dict[str, bool]
    commits_wait: bool

    @property
    def are_awaited(self) -> bool:
        """Whether nothing is captured before all of them have it."""
        return bool(self.awaited) and self.physical.keys() <= set(self.awaited)


def standbys(database: CapturedDatabase) -> Standbys:
    """The standbys of a server; raises SourceProblem."""
    found = database.row(STANDBYS) or {}
    awaited = tuple(name for name in found.get("awaited") or () if name)
    return Standbys(found.get("version", 0), awaited, found.get("physical") or {}, found.get("commits_wait", False))


def identity(database: CapturedDatabase) -> Server | None:
    """Which server it is; None if the role may not ask."""
    found = database.identity()
    return None if found is None else replace(found, is_guarded=standbys(database).are_awaited)


def warnings(database: CapturedDatabase) -> Iterator[str]:
    """What loses changes if a standby is promoted, or lets them wait; and values that are read before a commit."""
    found = standbys(database)
    # a connector that waits for standbys as well gets a commit when it is visible
    if found.commits_wait and not found.are_awaited:
        yield from _early_reads(database)
    if found.version < AWAITED_VERSION:
        return
    for name in sorted(found.physical.keys() - set(found.awaited)):
        awaited = ", ".join([*found.awaited, name])
        yield (
            f"a standby that reads replication slot {name} may lack changes that are captured already when it is "
            f"promoted: run ALTER SYSTEM SET synchronized_standby_slots = '{awaited}' as a superuser, then "
            "SELECT pg_reload_conf()"
        )
    for name in found.awaited:
        if not found.physical.get(name):
            why = "is not in use" if name in found.physical else "does not exist"
            yield (
                f"synchronized_standby_slots has {name}, which {why}, so that changes wait for its standby: let the "
                "standby connect, or remove the name"
            )


def _early_reads(database: CapturedDatabase) -> Iterator[str]:
    """Tables of which the connector may read a row while its commit waits for a standby, so that it finds none."""
    for table, names in read_apart(database).items():
        yield (
            f'if a transaction inserts a row into "{table.table}" and updates it, or changes its key, its long values '
            "may be missing until headwater sources watch has them read again: synchronous_standby_names lets the "
            f"commit wait, and the connector reads them before it is visible; run {with_old_rows(names)}"
        )


def promoted(database: CapturedDatabase, timeline: int, place: int) -> str | None:
    """Why changes may be missing that were captured up to `place` from a timeline; None if the server has them."""
    fork = _fork(database, timeline)
    if fork is not None and place <= fork:
        return None
    where = "" if fork is None else f" at {lsn_text(fork)}"
    return (
        f"its log has left timeline {timeline}, which was captured,{where}, because a standby was promoted or an "
        f"earlier state restored, and the connector, which is at {lsn_text(place)} now, may have passed that place "
        "before; synchronized_standby_slots prevents it"
    )


def _fork(database: CapturedDatabase, timeline: int) -> int | None:
    """Where the log of a server has left a timeline, in bytes; None if it never had it, or does not say."""
    with suppress(psycopg.Error), psycopg.connect(database.address.for_walsender(), autocommit=True) as connection:
        system = connection.execute("IDENTIFY_SYSTEM").fetchone()
        if system is None:
            return None
        history = connection.execute(f"TIMELINE_HISTORY {int(system[1])}").fetchone()
        content = history[1] if history else ""  # bytes before version 15
        for line in (content.decode() if isinstance(content, bytes) else str(content)).splitlines():
            number, _, rest = line.strip().partition("\t")
            if number == str(timeline):
                return read_lsn(rest.partition("\t")[0])
    return None
