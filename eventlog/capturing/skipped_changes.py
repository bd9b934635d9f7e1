"""Whether a connector skips changes, because the database is not the one that it has captured so far.

A standby that is promoted may lack the last changes, and a disk that is restored certainly does. The connector waits
until the log of the database has reached its place, and skips what is written until then. What was found once is noted,
because the log passes that place in the end.
"""

from __future__ import annotations

from headwater.eventlog.capturing import control_notes, control_topics
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.ports import Database, Server
from headwater.eventlog.settings import LogSettings

IDENTIFIER, VERSION, TIMELINE, GUARDED = "identifier", "version", "timeline", "guarded"
REASON = "reason"


def why_skipped(log: LogSettings, names: SourceNames, database: Database) -> str | None:
    """Why changes are missing, also if that was found earlier; None if none are.

    Raises SourceProblem or LogUnavailable.
    """
    noted = control_topics.last_note(log, names, control_notes.SKIPPED_CHANGES)
    if noted is not None:
        return str(noted.get(REASON, ""))
    was, now = _noted_server(log, names), database.identity()
    why = database.ahead()
    if was is not None and now is not None:
        why = why or _other_server(was, now) or _other_timeline(was, now, database)
        if why is None and now != was and now.timeline:
            _note(log, names, now)
    if why is not None:
        note_skipped(log, names, why)
    return why


def note_skipped(log: LogSettings, names: SourceNames, why: str) -> None:
    """Note that changes are missing until the source is removed, and why; raises LogUnavailable."""
    control_topics.note(log, names, control_notes.SKIPPED_CHANGES, {REASON: why})


def note_server(log: LogSettings, names: SourceNames, database: Database) -> None:
    """Note which server is captured, if that is not noted yet; raises SourceProblem or LogUnavailable."""
    found = database.identity()
    if found is not None and found != _noted_server(log, names):
        _note(log, names, found)


def _note(log: LogSettings, names: SourceNames, server: Server) -> None:
    noted = {
        IDENTIFIER: server.identifier,
        VERSION: server.version,
        TIMELINE: server.timeline,
        GUARDED: server.is_guarded,
    }
    control_topics.note(log, names, control_notes.SERVER, noted)


def advice(source: str, why: str) -> str:
    """What it means that changes were skipped, and what helps."""
    return (
        f"changes are missing ({why}): run headwater sources remove {source}, then apply, which reads all "
        "tables again, then sweep, which deletes rows that the database does not have"
    )


def _other_server(was: Server, now: Server) -> str | None:
    """Why this is not the server that was captured. After pg_upgrade, a newer one has its log and its slots."""
    if now.identifier == was.identifier or now.version > was.version:
        return None
    return f"this server has the system identifier {now.identifier}, and that which was captured had {was.identifier}"


def _other_timeline(was: Server, now: Server, database: Database) -> str | None:
    """Why the log of the server lacks changes, or may, that were captured before a standby was promoted."""
    if was.identifier != now.identifier or not (was.timeline and now.timeline) or was.timeline == now.timeline:
        return None
    return None if was.is_guarded else database.promoted(was.timeline)


def _noted_server(log: LogSettings, names: SourceNames) -> Server | None:
    noted = control_topics.last_note(log, names, control_notes.SERVER)
    return None if noted is None else Server(noted[IDENTIFIER], noted[VERSION], noted[TIMELINE], noted[GUARDED])
