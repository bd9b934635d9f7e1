"""`headwater master-key`: makes a master key, and wraps all keys of persons by a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, ClassVar

import typer

from headwater.eventlog.audit.commands import AuditedCommand, AuditedCommands, Declined, Failed
from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.personal.master_keys import new_master_key
from headwater.eventlog.personal.postgres import PostgresKeys, open_keys
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.settings import LogSettings


class _Verbs(AuditedCommands):
    program: ClassVar[str] = "master-key"


app = typer.Typer(
    cls=_Verbs, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False
)


@app.callback()
def master_key() -> None:
    """Make and rotate the master key, which wraps the keys of persons."""


@app.command()
def make() -> None:
    """Print a new master key, for HEADWATER_MASTER_KEY, or for a file that has it; nothing stores it."""
    print(new_master_key())


@app.command(cls=AuditedCommand)
def rewrap() -> None:
    """Wrap all keys of persons by the first master key of HEADWATER_MASTER_KEY; the others are not needed afterwards.

    Give every process the new key and the old one first, and restart them. It can be repeated.
    """
    with _opened() as keys:
        number = keys.rewrap()
    print(f"{number} keys wrapped by the first master key")


@app.command(cls=AuditedCommand)
def adopt(yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False) -> None:
    """Let the deployment use the store of keys at HEADWATER_KEYS from now on, because keys of the one before are lost
    for good.

    Values whose keys it does not have count as erased. Restart all programs afterwards.
    """
    question = "Values whose keys are not in the database at HEADWATER_KEYS will count as erased. Go on?"
    if not yes and not typer.confirm(question, err=True):
        raise Declined
    with _opened() as keys:
        print(f"the deployment has the store of keys {keys.adopt()}")


@contextmanager
def _opened() -> Iterator[PostgresKeys]:
    """The store of keys; prints known errors, and exits with code 1."""
    try:
        settings = LogSettings.without_modules(os.environ)
        with closing(open_keys(os.environ, settings.environment, LoggedKeys(os.environ))) as keys:
            yield keys
    except EventLogError as error:
        typer.echo(f"master-key: {error}", err=True)
        raise Failed(str(error)) from error


def main() -> Any:
    """Run the command line."""
    return app(prog_name=called_as())
