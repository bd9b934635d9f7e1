"""`replay`: where views stand, and building, checking and dropping their generations.

Exit codes: 0 done, or nothing differs; 1 failed; 2 asked wrongly; 3 rows differ, or a declaration is refused.
"""

from __future__ import annotations

import os

import typer
from rich.table import Table

from commands.errors import CommandError
from eventlog.errors import EventLogError
from eventlog.logs import log_to_stderr
from projections.errors import ProjectionError, UnknownView
from projections.lag import Lags
from replay import building, comparing, keeping, letters, planning
from replay.deployment import open_deployment
from replay.errors import NameTaken, NoSuchLetter, NothingToDrop, ReplayError
from replay.output import AsJson, console, fail, print_json

app = typer.Typer(
    help="Rebuild Headwater's views from the log, and see where they stand.",
    epilog="Exit codes: 0 done, or nothing differs; 1 failed; 2 asked wrongly; 3 rows differ, or a change is refused.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
STALLED_S = 3.0
"""A view that is behind and does not move for so long, while heartbeats come every second, is stalled."""

for command in (
    building.rebuild,
    building.rollback,
    comparing.verify,
    comparing.diff,
    keeping.prune,
    keeping.drop,
    keeping.publish,
    planning.plan,
):
    app.command()(command)
app.add_typer(letters.app, name="dead-letters")


def main() -> None:
    """Run the command; every error that Headwater knows ends in one line and exit code 1 or 2."""
    try:
        log_to_stderr(os.environ, default="WARNING")
        app()
    except (UnknownView, NameTaken, NothingToDrop, NoSuchLetter) as error:
        fail(error, 2)
    except (EventLogError, CommandError, ProjectionError, ReplayError) as error:
        fail(error, 1)


@app.command("list")
def list_views(as_json: AsJson = False) -> None:
    """The views of this deployment: key, stores and version."""
    with open_deployment(os.environ) as deployment:
        views = list(deployment.views.views.values())
    if as_json:
        print_json([{"view": each.name, "version": each.version, "key": each.key_name} for each in views])
        return
    table = Table("view", "version", "key", "stores", "what it is")
    for view in views:
        stores = ", ".join(store.name for store in view.stores)
        table.add_row(view.name, str(view.version), view.key_name, stores, view.doc)
    console.print(table)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Generation, position, lag and freshness of each view in each store, and whether it is behind or stalled."""
    with open_deployment(os.environ) as opened:
        lags = Lags(opened.settings, opened.stores, opened.views, opened.generations, opened.log)
        found = lags.watch(STALLED_S)
    if as_json:
        print_json([each.to_json() for each in found])
        return
    table = Table("view", "store", "version", "generation", "position", "lag (events)", "behind (s)", "")
    for each in found:
        position = " ".join(f"{partition}:{offset}" for partition, offset in sorted(each.position.items()))
        told = f"{each.standing}: {each.problem}" if each.problem else each.standing
        shown = [each.generation, position, each.lag_events, each.freshness_s, told]
        table.add_row(each.view, each.store, str(each.version), *("-" if x is None else str(x) for x in shown))
    console.print(table)
