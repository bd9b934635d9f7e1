"""`replay rebuild | rollback`: generations made, and made live."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from projections.building import Options, Rebuilt
from projections.selection import Point, Selection
from projections.view import TableView
from replay.deployment import Deployment, open_deployment, start_spark
from replay.errors import NameTaken
from replay.output import AsJson, console, print_json, steps
from replay.planning import Estimate, estimate


def rebuild(
    views: Annotated[list[str] | None, typer.Argument(help="The views to rebuild.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Rebuild every view.")] = False,
    name: Annotated[str, typer.Option("--as", help="Build a view of this name instead, which stays as it is.")] = "",
    since: Annotated[str, typer.Option("--from", help="With --as: from these positions or this time on.")] = "",
    until: Annotated[str, typer.Option(help="With --as: up to these positions or this time, it included.")] = "",
    where: Annotated[str, typer.Option(help="With --as: only events that fulfil this Spark SQL condition.")] = "",
    skip_poison: Annotated[bool, typer.Option(help="Send what cannot be read to dead-letters, and go on.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be read, and how long it would take.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a new generation of each VIEW from offset zero, beside the live one, and swap it in.

    Queries and live updates go on. The generation before is kept for `replay rollback`. When a rebuild fails, the live
    one is untouched.

    With --as NAME, VIEW is left alone: NAME becomes a view like it, of the events up to --until, for example, and
    answers under its own name, in the stores and in the API. `replay drop NAME` removes it.

    Positions are `partition:offset,…`, one for each partition; a time is like 2026-01-31T12:00:00Z.
    """
    if bool(views) == everything:
        raise typer.BadParameter("name the views to rebuild, or say --all")
    if (since or until or where) and not name:
        raise typer.BadParameter("a view of some of the events needs a name of its own: add --as NAME")
    if name and len(views or ()) != 1:
        raise typer.BadParameter("--as builds one view: name the one that it is made from")
    with open_deployment(os.environ) as deployment:
        chosen = [deployment.views.view(each) for each in views or deployment.views.views]
        if name in deployment.views.views:
            raise NameTaken(name)
        options = Options(_selection(since, until, where, deployment.settings.partitions), skip_poison)
        deployment.generations.prepare()
        if dry_run:
            _tell([estimate(deployment, view, options.selection) for view in chosen], as_json)
            return
        _run(deployment, chosen, name, options, as_json)


def rollback(view: Annotated[str, typer.Argument(help="The view.")], as_json: AsJson = False) -> None:
    """Make the generation of VIEW before the live one live again, once it has taken in what came since.

    It must be of the version that this code declares. The one that was live is kept: a second rollback undoes this one.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        with steps(quiet=as_json) as on_step:
            done = deployment.rebuilder().roll_back(deployment.views.view(view), on_step)
    if as_json:
        print_json(asdict(done))
        return
    console.print(f"{done.view} is generation {done.generation} again: {done.events:,} patches made up for it")


def _selection(since: str, until: str, where: str, partitions: int) -> Selection:
    try:
        first = Point.parse(since, partitions) if since else None
        last = Point.parse(until, partitions) if until else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return Selection(first, last, where or None)


def _run(deployment: Deployment, views: Sequence[TableView], name: str, options: Options, as_json: bool) -> None:
    started = time.monotonic()
    session = start_spark()
    startup_s = time.monotonic() - started
    rebuilder = deployment.rebuilder(lambda: session)
    done = []
    for view in views:
        with steps(quiet=as_json) as on_step:
            if name:
                done.append(rebuilder.build_part(view, name, options, on_step))
            else:
                done.append(rebuilder.rebuild(view, on_step, skip_poison=options.skip_poison))
    _report(done, startup_s, as_json)


def _report(done: Sequence[Rebuilt], startup_s: float, as_json: bool) -> None:
    events, seconds = sum(each.events for each in done), sum(each.seconds for each in done)
    rate = events / seconds if seconds else 0.0
    if as_json:
        print_json({"views": [asdict(each) for each in done], "events_per_s": rate, "startup_s": round(startup_s, 3)})
        return
    for each in done:
        skipped = f"; {each.skipped:,} left out: see `replay dead-letters list`" if each.skipped else ""
        console.print(
            f"{each.view} is generation {each.generation} now: {each.events:,} events, {each.rows:,} rows, "
            f"{each.seconds:.1f} s{skipped}"
        )


def _tell(estimates: Sequence[Estimate], as_json: bool) -> None:
    if as_json:
        print_json({"views": [asdict(each) for each in estimates]})
        return
    for each in estimates:
        console.print(each.text())
