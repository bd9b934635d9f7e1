"""`replay rebuild | rollback`: build a generation, or go back to the previous one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.projections.engines import EngineChoice
from headwater.projections.generations.rebuild.rebuild import Options, Rebuilt
from headwater.projections.generations.registry.sources import Point, Selection
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, open_deployment, start_spark
from headwater.replay.errors import NameTaken
from headwater.replay.output import AsJson, print_json, say
from headwater.replay.plan import estimate
from headwater.replay.verbs import Everything, OnStep, Outcome, SkipPoison, Views, check_choice, on_all, on_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    views: Views = None,
    everything: Everything = False,
    name: Annotated[
        str, typer.Option("--as", help="Build a separate view with this name. It never changes afterwards.")
    ] = "",
    since: Annotated[
        str, typer.Option("--from", help="With --as: only events from these positions or this time on.")
    ] = "",
    until: Annotated[str, typer.Option(help="With --as: only events before these positions or this time.")] = "",
    skip_poison: SkipPoison = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print how much would be read and how long it would take.")
    ] = False,
    engine: Annotated[
        EngineChoice, typer.Option(help="What folds the log; auto: local processes if it is small, else Spark.")
    ] = EngineChoice.AUTO,
    as_json: AsJson = False,
) -> None:
    """Build a new generation of each VIEW from the whole log, then swap it with the live generation.

    Queries and live updates continue. The previous generation is kept for `replay rollback`. If a rebuild fails, the
    live generation does not change, the other views are still rebuilt, and the exit code is 1.

    With --as NAME, VIEW does not change. NAME becomes a separate view with the same columns, made from the selected
    events. The stores and the API serve it under its own name. `replay drop NAME` removes it.

    --from and --until take one of these; --from is inclusive, --until is exclusive:

    - positions: `partition:offset,…`, one per partition, like `position` in `GET /streams/$all`
    - a time, such as 2026-01-31T12:00:00Z
    """
    check_choice(views, everything)
    if (since or until) and not name:
        raise typer.BadParameter("--from and --until need --as NAME")
    if name and len(views or ()) != 1:
        raise typer.BadParameter("--as needs exactly one VIEW")
    with open_deployment(os.environ) as deployment:
        declared = list(deployment.declared(views).values())
        if name in deployment.views.views:
            raise NameTaken(name)
        options = Options(_selection(since, until, deployment.settings.partitions), skip_poison)
        if name and declared[0].has_own_query:
            raise typer.BadParameter(f'"{declared[0].name}" is a stream view, which is only built from all records')
        if name and declared[0].tables and not options.selection.is_all:
            raise typer.BadParameter(
                f'"{declared[0].name}" reads rows of captured tables or of other views, of which only the current ones '
                "are known: --from and --until need a view of events"
            )
        deployment.generations.prepare()
        if dry_run:
            estimates = [estimate(deployment, view, options.selection, engine) for view in declared]
            if as_json:
                print_json({"views": [asdict(each) for each in estimates]})
            for each in estimates if not as_json else ():
                say(each.text())
            return
        _run(deployment, declared, name, options, engine, as_json)


def rollback(views: Views = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Go back to the previous generation of each VIEW, after it has applied the patches that it misses.

    The previous generation must have the version that this code declares. A second rollback undoes the first.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        declared = deployment.declared(views)
        deployment.generations.prepare()
        rebuilder = deployment.rebuilder()
        on_each(
            declared,
            lambda name, on_step: rebuilder.roll_back(declared[name], on_step),
            lambda outcome: outcome.report(
                as_json,
                asdict,
                lambda done: (
                    f"{done.view}: rolled back to generation {done.generation}; {done.events or 0:,} patches applied"
                ),
            ),
        ).exit()


def _selection(since: str, until: str, partitions: int) -> Selection:
    try:
        first = Point.parse(since, partitions) if since else None
        last = Point.parse(until, partitions) if until else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return Selection(first, last)


def _run(
    deployment: Deployment, views: Sequence[View], name: str, options: Options, engine: EngineChoice, as_json: bool
) -> None:
    startup_s = took_s = 0.0

    def session() -> SparkSession:
        nonlocal startup_s
        began = time.monotonic()
        started = start_spark()
        startup_s += time.monotonic() - began
        return started

    rebuilder = deployment.rebuilder(session, engine)
    by_name = {view.name: view for view in views}
    order = {view: number for number, view in enumerate(by_name)}

    def build_part(view: str, on_step: OnStep) -> Rebuilt:
        return rebuilder.build_part(by_name[view], name, options, on_step)

    def build_all(on_step: OnStep) -> Iterator[tuple[str, Rebuilt | Exception]]:
        nonlocal took_s
        began = time.monotonic()
        for view, result in rebuilder.rebuild_all(list(by_name.values()), on_step, skip_poison=options.skip_poison):
            if isinstance(result, Rebuilt):
                took_s = max(took_s, time.monotonic() - began - result.phases.get("hand-over", 0.0))
            yield view.name, result

    def report(outcome: Outcome[Rebuilt]) -> None:
        outcome.done.sort(key=lambda each: order.get(each.view, 0))
        _report(outcome, took_s or sum(each.seconds for each in outcome.done), startup_s, as_json)

    (on_each(by_name, build_part, report) if name else on_all(by_name, build_all, report)).exit()


def _report(outcome: Outcome[Rebuilt], seconds: float, startup_s: float, as_json: bool) -> None:
    if as_json:
        events = sum(each.offsets if each.events is None else each.events for each in outcome.done)
        rate = events / seconds if seconds else 0.0
        outcome.print_json(to_json=asdict, events_per_s=rate, startup_s=round(startup_s, 3))
    else:
        for each in outcome.done:
            # nobody counts the rows of a stream view
            read = f"{each.offsets:,} offsets of the log" if each.events is None else f"{each.events:,} events"
            size = f"{each.events or 0:,} records" if each.rows is None else f"{read}, {each.rows:,} rows"
            counts = {"unreadable records skipped": each.skipped, "patches refused by a store": each.refused}
            listed = " and ".join(f"{number:,} {what}" for what, number in counts.items() if number)
            letters = f"; {listed}: see `replay dead-letters list`" if listed else ""
            say(f"{each.view} is now generation {each.generation}: {size}, {each.seconds:.1f} s{letters}")
    outcome.complain()
