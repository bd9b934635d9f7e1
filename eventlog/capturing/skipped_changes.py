"""Whether a connector skips changes, because the database is not the one that it has captured so far.

A standby that is promoted may lack the last changes, and a disk that is restored certainly does. The connector waits
until the log of the database has reached its place, and skips what is written until then. What was found once is noted,
because the log passes that place in the end.
"""

from __future__ import annotations

from eventlog.capturing import control_topics
from eventlog.capturing.naming import SourceNames
from eventlog.capturing.ports import Database, Server
from eventlog.settings import LogSettings

IDENTIFIER, VERSION, REASON = "identifier", "version", "reason"


def why_skipped(log: LogSettings, names: SourceNames, database: Database) -> str | None:
    """Why changes are missing, also if that was found earlier; None if none are.

    Raises SourceProblem or LogUnavailable.
    """
    noted = control_topics.last_note(log, names, control_topics.SKIPPED_CHANGES)
    if noted is not None:
        return str(noted.get(REASON, ""))
    why = database.ahead() or _other_server(log, names, database)
    if why is not None:
        control_topics.note(log, names, control_topics.SKIPPED_CHANGES, {REASON: why})
    return why


def note_server(log: LogSettings, names: SourceNames, database: Database) -> None:
    """Note which server is captured, if that is not noted yet; raises SourceProblem or LogUnavailable."""
    found = database.identity()
    if found is not None and found != _noted_server(log, names):
        control_topics.note(log, names, control_topics.SERVER, {IDENTIFIER: found.identifier, VERSION: found.version})


def advice(source: str, why: str) -> str:
    """What it means that changes were skipped, and what helps."""
    return (
        f"changes are missing ({why}): run python -m eventlog.sources remove {source}, then apply, which reads all "
        "tables again, then sweep, which deletes rows that the database does not have"
    )


def _other_server(log: LogSettings, names: SourceNames, database: Database) -> str | None:
    """Why this is not the server that was captured. After pg_upgrade, a newer one has its log and its slots."""
    noted = _noted_server(log, names)
    found = database.identity() if noted is not None else None
    if noted is None or found is None or found.identifier == noted.identifier or found.version > noted.version:
        return None
    return (
        f"this server has the system identifier {found.identifier}, and that which was captured had {noted.identifier}"
    )


def _noted_server(log: LogSettings, names: SourceNames) -> Server | None:
    noted = control_topics.last_note(log, names, control_topics.SERVER)
    match noted:
        case {"identifier": str(identifier), "version": int(version)}:
            return Server(identifier, version)
        case _:
            return None
