"""`replay`: show the state of views, and build, check and drop their generations."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import typer
from typer.core import TyperCommand

from headwater.eventlog.personal.installed import install_when_needed, opened_from
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.settings import LogSettings
from headwater.replay import (
    dead_letters,
    erase,
    list_views,
    plan,
    prune,
    rebuild,
    reseal,
    row,
    status,
    verify,
)
from headwater.replay.output import fail
from headwater.replay.verbs import FAILED_EXIT, KNOWN, USAGE_ERRORS, Verbs

USAGE_EXIT: Final = 2
EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 failure; 2 wrong arguments; "
    "3 rows differ, the log is broken, a change is refused, or a view needs attention."
)


def _complaining(invoke: Callable[[], Any]) -> Any:
    """Print every known error of a command in one line, and exit with code 1 or 2."""
    try:
        return invoke()
    except USAGE_ERRORS as error:
        fail(error, USAGE_EXIT)
    except KNOWN as error:
        fail(error, FAILED_EXIT)


class Commands(Verbs):
    """Several commands, whose known errors are printed in one line."""

    def invoke(self, ctx: Any) -> Any:
        return _complaining(lambda: super(Commands, self).invoke(ctx))


class OnlyCommand(TyperCommand):
    """Likewise, for a program that is one command: Typer makes no group of it."""

    def invoke(self, ctx: Any) -> Any:
        return _complaining(lambda: super(OnlyCommand, self).invoke(ctx))


app = typer.Typer(
    cls=Commands, epilog=EXIT_CODES, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)
app.command("list")(list_views.list_views)
for command in (
    status.status,
    list_views.generations,
    plan.plan,
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
    undo = install_when_needed(lambda: opened_from(os.environ, LogSettings.without_modules(os.environ).environment))
    try:
        _COMMANDS(prog_name=called_as())
    finally:
        undo()
