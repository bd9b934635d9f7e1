"""`replay rebuild | rollback`: generations made, and made live."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from projections.generations.building import Options, Rebuilt
from projections.generations.selection import Point, Selection
from projections.table.view import TableView
from replay.choosing import Everything, Views, check_choice, chosen
from replay.deployment import Deployment, open_deployment, start_spark
from replay.errors import NameTaken
from replay.outcome import Outcome, on_each
from replay.output import AsJson, print_json, say
from replay.planning import Estimate, estimate
from replay.progress import OnStep


def rebuild(
    views: Views = None,
    everything: Everything = False,
    name: Annotated[str, typer.Option("--as", help="Build a view of this name instead, which stays as it is.")] = "",
    since: Annotated[str, typer.Option("--from", help="With --as: from these positions or this time on.")] = "",
    until: Annotated[str, typer.Option(help="With --as: before these positions or this time.")] = "",
    where: Annotated[str, typer.Option(help="With --as: only events that fulfil this Spark SQL condition.")] = "",
    skip_poison: Annotated[
        bool, typer.Option("--skip-poison", help="Send what cannot be read to dead-letters, and go on.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be read, and how long it would take.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a new generation of each VIEW from offset zero, beside the live one, and swap it in.

    Queries and live updates go on. The generation before is kept for `replay rollback`. When a rebuild fails, the live
    one is untouched, and the other views are rebuilt all the same; exit code 1 then.

    With --as NAME, VIEW is left alone: NAME becomes a view like it, of the events before --until, for example, and
    answers under its own name, in the stores and in the API. `replay drop NAME` removes it.

    Positions are `partition:offset,…`, one for each partition, as `GET /streams/$all` has them in `position`; a time is
    like 2026-01-31T12:00:00Z. What --until names is left out, and --from begins with it.
    """
    check_choice(views, everything)
    if (since or until or where) and not name:
        raise typer.BadParameter("a view of some of the events needs a name of its own: add --as NAME")
    if name and len(views or ()) != 1:
        raise typer.BadParameter("--as builds one view: name the one that it is made from")
    with open_deployment(os.environ) as deployment:
        declared = [deployment.views.view(each) for each in chosen(views, deployment.views.views)]
        if name in deployment.views.views:
            raise NameTaken(name)
        options = Options(_selection(since, until, where, deployment.settings.partitions), skip_poison)
        deployment.generations.prepare()
        if dry_run:
            _report_estimates([estimate(deployment, view, options.selection) for view in declared], as_json)
            return
        _run(deployment, declared, name, options, as_json)


def rollback(views: Views = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Make the generation of each VIEW before the live one live again, once it has taken in what came since.

    It must be of the version that this code declares. The one that was live is kept: a second rollback undoes this one.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        declared = {name: deployment.views.view(name) for name in chosen(views, deployment.views.views)}
        deployment.generations.prepare()
        rebuilder = deployment.rebuilder()
        on_each(
            declared,
            lambda name, on_step: rebuilder.roll_back(declared[name], on_step),
            lambda outcome: _report_rollback(outcome, as_json),
        ).exit()


def _report_rollback(outcome: Outcome[Rebuilt], as_json: bool) -> None:
    if as_json:
        outcome.print_json(to_json=asdict)
    else:
        for each in outcome.done:
            say(f"{each.view}: rolled back to generation {each.generation}; {each.events:,} patches applied")
    outcome.complain()


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
    by_name = {view.name: view for view in views}

    def build(view: str, on_step: OnStep) -> Rebuilt:
        if name:
            return rebuilder.build_part(by_name[view], name, options, on_step)
        return rebuilder.rebuild(by_name[view], on_step, skip_poison=options.skip_poison)

    on_each(by_name, build, lambda outcome: _report(outcome, startup_s, as_json)).exit()


def _report(outcome: Outcome[Rebuilt], startup_s: float, as_json: bool) -> None:
    if as_json:
        events, seconds = sum(each.events for each in outcome.done), sum(each.seconds for each in outcome.done)
        rate = events / seconds if seconds else 0.0
        outcome.print_json(to_json=asdict, events_per_s=rate, startup_s=round(startup_s, 3))
    else:
        for each in outcome.done:
            skipped = f"; {each.skipped:,} left out: see `replay dead-letters list`" if each.skipped else ""
            say(
                f"{each.view} is generation {each.generation} now: {each.events:,} events, {each.rows:,} rows, "
                f"{each.seconds:.1f} s{skipped}"
            )
    outcome.complain()


def _report_estimates(estimates: Sequence[Estimate], as_json: bool) -> None:
    if as_json:
        print_json({"views": [asdict(each) for each in estimates]})
        return
    for each in estimates:
        say(each.text())
