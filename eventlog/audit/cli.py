"""`headwater audit`: shows what operators did."""

from __future__ import annotations

import os
import re
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer

from headwater.eventlog.audit.trail import AuditRecord, last_of_each, read_trail
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import EventLog
from headwater.eventlog.programs.command_line import called_as, print_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import shortened

FAILED_EXIT: Final = 1
NO_END: Final = "no end"
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
"""Control characters, which would end a line or change the terminal."""

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def audit(
    verb: Annotated[str, typer.Option(help="Only this verb, such as `replay erase`, or all that begin so.")] = "",
    who: Annotated[str, typer.Option(help="Only of this actor or user.")] = "",
    since: Annotated[str, typer.Option(help="Only since this time or day, such as 2026-01-31T12:00:00Z.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per action and line.")] = False,
) -> None:
    """Show what operators did, the oldest first: when, who, from which host, with which outcome.

    An action without an end still runs, or was killed.
    """
    try:
        with closing(KafkaLog(LogSettings.without_modules(os.environ))) as log:
            show(log, verb, who, _time(since), as_json=as_json)
    except EventLogError as error:
        print_error(f"audit: {error}")
        raise typer.Exit(FAILED_EXIT) from error


def show(log: EventLog, verb: str, who: str, since: datetime | None, *, as_json: bool) -> None:
    """Print the actions that fit. Raises LogUnavailable."""
    records = list(read_trail(log, since))
    for action in last_of_each(record for record in records if record is not None):
        is_of_verb = not verb or f"{action.verb} ".startswith(f"{verb} ")
        if is_of_verb and (not who or who in (action.actor, action.user, action.sudo_user)):
            print(msgspec.json.encode(action).decode() if as_json else _line(action))
    if unreadable := sum(record is None for record in records):
        print_error(f"audit: {unreadable} records cannot be read: they are of a later release, or not of Headwater")


def _line(record: AuditRecord) -> str:
    user = record.user if record.sudo_user is None else f"{record.user} ({record.sudo_user})"
    who = user if record.actor is None else f"{record.actor} as {user}"
    host = record.host if record.client is None else f"{record.host} from {record.client}"
    given = " ".join(
        name if value is True else f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in record.arguments.items()
    )
    outcome = record.outcome or NO_END
    reason = shortened(record.reason or "")
    parts = (f"{record.begun[:19]}Z", who, host, f"{record.verb} {given}".rstrip(), outcome, reason)
    return CONTROL.sub(" ", "  ".join(part for part in parts if part))


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f'--since is "{text}": write a time such as 2026-01-31T12:00:00Z') from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def main() -> None:
    """Run the command line."""
    app(prog_name=called_as())
