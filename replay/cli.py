"""`replay`: show the state of views, and build, check and drop their generations.

A verb imports what it needs, which takes longer than to print a help, so only the verb that is asked for is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from headwater.eventlog.audit.commands import AuditedCommand
from headwater.eventlog.personal.installed import install_when_needed, opened_from
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.replay.verbs import EXIT_CODES, Commands

if TYPE_CHECKING:
    from headwater.eventlog.personal.vault import Vault


class Verb(NamedTuple):
    """A verb. place: its function, or the group of its verbs. help: as the list of all verbs shows it.

    is_recorded: whether it changes something; those of a group say so themselves.
    """

    place: str
    help: str
    is_recorded: bool = True


VERBS: Final = {
    "list": Verb("list_views.list_views", "List the views that this code declares: version, key and stores.", False),
    "status": Verb(
        "status.status",
        "Show the state of each VIEW in each of its stores: its generation, and how far it is behind the log.",
        False,
    ),
    "generations": Verb(
        "list_views.generations",
        "List the generations of each VIEW, including views made with --as: state, time of the build and size.",
        False,
    ),
    "plan": Verb("rebuild.plan", "Show which views this code would build, rebuild or refuse at its start.", False),
    "explain": Verb(
        "list_views.explain",
        "Show the Python source that a rebuild runs for VIEW if it folds the log in local processes.",
        False,
    ),
    "rebuild": Verb(
        "rebuild.rebuild",
        "Build a new generation of each VIEW from the whole log, then swap it with the live generation.",
    ),
    "rollback": Verb(
        "rebuild.rollback",
        "Go back to the previous generation of each VIEW, after it has applied the patches that it misses.",
    ),
    "verify": Verb(
        "verify.verify",
        "Rebuild each VIEW separately and compare every row with the live generation. Exit code 3: rows differ.",
    ),
    "diff": Verb("verify.diff", "Compare two generations row by row. Exit code 3: rows differ.", False),
    "row": Verb(
        "row.row",
        "Fold the row with this KEY again from the log, and show how it differs in each store. Exit code 3: it "
        "differs.",
    ),
    "pause": Verb(
        "prune.pause",
        "Stop applying events to each VIEW until `replay resume`, also after restarts. Queries go on with its rows.",
    ),
    "resume": Verb("prune.resume", "Apply events to each VIEW again, from where it was paused."),
    "prune": Verb(
        "prune.prune",
        "Drop all generations of each VIEW except the current one, including those of interrupted rebuilds.",
    ),
    "drop": Verb(
        "prune.drop",
        "Remove each VIEW that this code does not declare, with all its generations. Asks for confirmation.",
    ),
    "publish": Verb(
        "prune.publish",
        "Point the aliases of each VIEW (SQL view, index alias, key pointer) at its live generation again.",
    ),
    "erase": Verb("erase.erase", "Erase one event, or all events of a stream."),
    "reseal": Verb(
        "reseal.reseal",
        "Seal personal values that are in plaintext in the log, because their fields became personal later.",
    ),
    "continue-processes": Verb(
        "continuing.continue_processes",
        "Let processes go on with new events where `events` has lost records that they were sent, or is another topic.",
    ),
    "dead-letters": Verb("dead_letters.app", "Show and retry records that could not be read or loaded."),
}


def app_of(words: Sequence[str] | None = None) -> typer.Typer:
    """The command line. words: of a call, for which no verbs are imported but those that it names; None: all."""
    app = typer.Typer(
        cls=Commands,
        epilog=EXIT_CODES,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    app.callback()(start)
    for name, verb in VERBS.items():
        if words is not None and name not in words:
            app.command(name, help=verb.help)(start)
            continue
        module, _, function = verb.place.partition(".")
        found = getattr(import_module(f"headwater.replay.{module}"), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, cls=AuditedCommand if verb.is_recorded else None)(found)
    return app


def start() -> None:
    """Show the state of Headwater's views and rebuild them from the log.

    Give the names of views, or `--all`. Results go to standard output, progress and errors to standard error.
    """
    log_to_stderr(os.environ, "replay", default="WARNING")


def main(command: Callable[..., object]) -> None:
    """Run the command line. command: what Typer makes of `app_of`."""

    def opened() -> Vault:
        from headwater.eventlog.audit.logged_keys import LoggedKeys  # noqa: PLC0415 - few commands need the vault
        from headwater.eventlog.settings import LogSettings  # noqa: PLC0415

        return opened_from(os.environ, LogSettings.without_modules(os.environ).environment, LoggedKeys(os.environ))

    undo = install_when_needed(opened)
    try:
        command(prog_name=called_as())
    finally:
        undo()
