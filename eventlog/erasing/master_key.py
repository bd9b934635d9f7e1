"""`headwater master-key`: makes a master key, and wraps all keys of persons by a new one."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any, ClassVar

import typer

from headwater.eventlog.audit.commands import AuditedCommands, Failed
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.personal.master_keys import new_master_key
from headwater.eventlog.personal.postgres import open_keys
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.settings import LogSettings


class _Verbs(AuditedCommands):
    program: ClassVar[str] = "master-key"
    read_only: ClassVar[frozenset[str]] = frozenset({"make"})


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


@app.command()
def rewrap() -> None:
    """Wrap all keys of persons by the first master key of HEADWATER_MASTER_KEY; the others are not needed afterwards.

    Give every process the new key and the old one first, and restart them. It can be repeated.
    """
    try:
        settings = LogSettings.without_modules(os.environ)
        with closing(open_keys(os.environ, settings.environment)) as keys:
            number = keys.rewrap()
    except EventLogError as error:
        typer.echo(f"master-key: {error}", err=True)
        raise Failed(str(error)) from error
    print(f"{number} keys wrapped by the first master key")


def main() -> Any:
    """Run the command line."""
    return app(prog_name=called_as() or "python -m headwater.eventlog.erasing.master_key")


if __name__ == "__main__":
    main()
