"""`replay list | status | rebuild`. Exit codes: 0 done, 1 failed, 2 asked wrongly."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from eventlog.errors import EventLogError
from projections.building import Rebuilt, Step
from projections.errors import ProjectionError, UnknownView
from projections.lag import Lags
from projections.rebuild import Rebuilder, publish_live
from projections.view import TableView
from replay.deployment import open_deployment, start_spark

app = typer.Typer(
    help="Rebuild Headwater's views from the log, and see where they stand.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
STALLED_S = 3.0
"""A view that is behind and does not move for so long, while heartbeats come every second, is stalled."""
console = Console()
errors = Console(stderr=True)


class RateColumn(ProgressColumn):
    """Events or patches a second."""

    def render(self, task: Task) -> Text:
        """The rate so far, empty until there is one."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]


def main() -> None:
    """Run the command; every error that Headwater knows ends in one line and exit code 1 or 2."""
    logging.basicConfig(level=os.environ.get("HEADWATER_LOG_LEVEL", "WARNING"), stream=sys.stderr)
    try:
        app()
    except UnknownView as error:
        _fail(error, 2)
    except (EventLogError, ProjectionError) as error:
        _fail(error, 1)


@app.command("list")
def list_views(as_json: AsJson = False) -> None:
    """The views of this deployment: key, stores and version."""
    with open_deployment(os.environ) as deployment:
        views = list(deployment.views.views.values())
    if as_json:
        print(json.dumps([{"view": each.name, "version": each.version, "key": each.key_name} for each in views]))
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
        print(json.dumps([each.to_json() for each in found]))
        return
    table = Table("view", "store", "version", "generation", "position", "lag (events)", "behind (s)", "")
    for each in found:
        position = " ".join(f"{partition}:{offset}" for partition, offset in sorted(each.position.items()))
        told = f"{each.standing}: {each.problem}" if each.problem else each.standing
        shown = [each.generation, position, each.lag_events, each.freshness_s, told]
        table.add_row(each.view, each.store, str(each.version), *("-" if x is None else str(x) for x in shown))
    console.print(table)


@app.command()
def rebuild(
    views: Annotated[list[str] | None, typer.Argument(help="The views to rebuild.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Rebuild every view.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a new generation of each VIEW from offset zero, beside the live one, and swap it in.

    Queries and live updates go on. The generation before is kept. When a rebuild fails, the live one is untouched.
    """
    if bool(views) == everything:
        raise typer.BadParameter("name the views to rebuild, or say --all")
    with open_deployment(os.environ) as deployment:
        chosen = [deployment.views.view(name) for name in views or deployment.views.views]
        started = time.monotonic()
        session = start_spark()
        startup_s = time.monotonic() - started
        rebuilder = deployment.rebuilder(lambda: session)
        deployment.generations.prepare()
        done = [_rebuild(rebuilder, view, quiet=as_json) for view in chosen]
    _report(done, startup_s, as_json)


@app.command()
def publish(views: Annotated[list[str], typer.Argument(help="The views.")], as_json: AsJson = False) -> None:
    """Point the plain names of each VIEW (SQL view, index alias, key pointer) at its live generation again.

    A rebuild does it after the swap; this repairs them where it was killed, or a store was away, at that moment.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        chosen = [deployment.views.view(name) for name in views]
        done = {view.name: publish_live(view, deployment.generations, deployment.stores).generation for view in chosen}
    if as_json:
        print(json.dumps({"views": [{"view": name, "generation": number} for name, number in done.items()]}))
        return
    for name, number in done.items():
        console.print(f"{name}: the plain names lead to generation {number}")


def _rebuild(rebuilder: Rebuilder, view: TableView, quiet: bool) -> Rebuilt:
    if quiet:
        return rebuilder.rebuild(view)
    with _progress() as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: Step) -> None:
            if step.phase not in tasks:
                tasks[step.phase] = progress.add_task(f"{step.view}: {step.phase}", total=step.total or None)
            progress.update(tasks[step.phase], completed=step.done, total=step.total or None)

        return rebuilder.rebuild(view, show)


@contextmanager
def _progress() -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=errors) as progress:
        yield progress


def _report(done: list[Rebuilt], startup_s: float, as_json: bool) -> None:
    events, seconds = sum(each.events for each in done), sum(each.seconds for each in done)
    rate = events / seconds if seconds else 0.0
    if as_json:
        views = [asdict(each) for each in done]
        print(json.dumps({"views": views, "events_per_s": rate, "startup_s": round(startup_s, 3)}))
        return
    for each in done:
        console.print(
            f"{each.view} is generation {each.generation} now: {each.events:,} events, {each.rows:,} rows, "
            f"{each.seconds:.1f} s"
        )


def _fail(error: Exception, code: int) -> None:
    errors.print(f"replay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise SystemExit(code)
