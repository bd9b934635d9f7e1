"""`replay`: show the state of views, and build, check and drop their generations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import typer

from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.personal.installed import install_when_needed, opened_from
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.settings import LogSettings
from headwater.replay import (
    continuing,
    dead_letters,
    erase,
    list_views,
    prune,
    rebuild,
    reseal,
    row,
    status,
    verify,
)
from headwater.replay.verbs import EXIT_CODES, Commands

if TYPE_CHECKING:
    from headwater.eventlog.personal.vault import Vault

app = typer.Typer(
    cls=Commands, epilog=EXIT_CODES, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)
app.command("list")(list_views.list_views)
for command in (
    status.status,
    list_views.generations,
    rebuild.plan,
    list_views.explain,
    rebuild.rebuild,
    rebuild.rollback,
    verify.verify,
    verify.diff,
    row.row,
    prune.pause,
    prune.resume,
    prune.prune,
    prune.drop,
    prune.publish,
    erase.erase,
    reseal.reseal,
    continuing.continue_processes,
):
    app.command()(command)
app.add_typer(dead_letters.app, name="dead-letters")


@app.callback()
def start() -> None:
    """Show the state of Headwater's views and rebuild them from the log.

    Give the names of views, or `--all`. Results go to standard output, progress and errors to standard error.
    """
    log_to_stderr(os.environ, "replay", default="WARNING")


_COMMANDS: Final = typer.main.get_command(app)  # here, so that an interruption of `main` is one of a command


def main() -> None:
    """Run the command line."""

    def opened() -> Vault:
        return opened_from(os.environ, LogSettings.without_modules(os.environ).environment, LoggedKeys(os.environ))

    undo = install_when_needed(opened)
    try:
        _COMMANDS(prog_name=called_as())
    finally:
        undo()
