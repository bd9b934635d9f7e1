"""`replay plan | rebuild | rollback`: what would be rebuilt, and build a generation, or go back to the previous one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.recorded_versions import changed_versions
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.engines import EngineChoice, why_spark
from headwater.projections.generations.rebuild.rebuild import Options, Rebuilt
from headwater.projections.generations.registry.generation import Generation, changes_since, has_declaration_of
from headwater.projections.generations.registry.sources import ALL, Point, Selection, ends_of, sources
from headwater.projections.generations.upkeep.rates import last_bulk_rate
from headwater.projections.stores.open import backend, open_reader
from headwater.projections.stores.store import Target
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, open_deployment, start_spark
from headwater.replay.errors import NameTaken
from headwater.replay.output import AsJson, Cell, complain, errors, one_line, print_json, say, show_notes, show_table
from headwater.replay.verbs import (
    Everything,
    OnStep,
    Outcome,
    ReadAll,
    SkipPoison,
    Views,
    check_choice,
    on_all,
    on_each,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED_EXIT = 3
COLUMNS = ("view", "live version", "declared", "what happens", "offsets", "seconds", "changes")


@dataclass(frozen=True)
class Estimate:
    """How much a rebuild would read, and what folds it.

    offsets: of `events`, including gaps and heartbeats.
    seconds: None if no rebuild was measured yet.
    engine: "local" or "spark".
    why: why Spark folds it; None if local processes do.
    """

    view: str
    offsets: int
    seconds: float | None
    engine: str = "local"
    why: str | None = None

    def text(self) -> str:
        """For people."""
        how_long = (
            "duration unknown until a first rebuild is measured"
            if self.seconds is None
            else f"about {self.seconds:,.0f} s"
        )
        by = "local processes" if self.why is None else f"Spark ({self.why})"
        return f"{self.view}: {self.offsets:,} offsets of the log to read, {how_long}, by {by}"


@dataclass(frozen=True)
class Planned:
    """What happens to a view when this code is started.

    action: "nothing", "add in place" (to what is live, without a rebuild), "build" (it is new), "rebuild" (a new
    version), "refuse" (changed, with the version that it had: a higher one is a rebuild) or "left over" (this code does
    not declare it). changes: lines of its declaration, as a diff, or what is added. seconds: how long it takes, about;
    None if that is unknown, or nothing happens.
    """

    view: str
    action: str
    live: str | None
    declared: str | None
    estimate: Estimate | None = None
    changes: list[str] = field(default_factory=list)
    seconds: float | None = None


def plan(views: Views = None, everything: ReadAll = False, as_json: AsJson = False) -> None:
    """Show which views this code would build, rebuild or refuse at its start.

    It also names events whose fields changed without a new version, so that earlier events could not be read. Exit code
    3: it would refuse a view, or such an event was found.
    """
    check_choice(views, everything, reading=True)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        planned = plans(deployment)
        deployment.check_known(views, {view.view for view in planned})
        planned = [view for view in planned if not views or view.view in views]
        events = CommandRegistry.load(deployment.settings.modules).events.values()
        changed = changed_versions(deployment.log, events)
        if views:  # only those that they read
            read_by = [view for name, view in deployment.views.views.items() if name in views]
            changed = {name: why for name, why in changed.items() if any(view.handles(name) for view in read_by)}
    if as_json:
        print_json({"views": [asdict(view) for view in planned], "events": changed})
    else:
        show_table(COLUMNS, [_row(view) for view in planned], plain_only=("changes",))
        show_notes([f"{view.view}: {change}" for view in planned for change in view.changes])
        left = [view.view for view in planned if view.action == "left over"]
        show_notes([f"{view}: not declared by this code; `replay drop {view}` removes it" for view in left])
        for problem in (problem for problems in changed.values() for problem in problems):
            complain(one_line(problem))
    if changed or any(view.action == "refuse" for view in planned):
        raise typer.Exit(REFUSED_EXIT)


def _row(planned: Planned) -> Sequence[Cell]:
    offsets = planned.estimate.offsets if planned.estimate else None
    changes = "; ".join(planned.changes) or None
    versions = [tag and tag.rpartition("@")[2] for tag in (planned.live, planned.declared)]
    return planned.view, *versions, planned.action, offsets, planned.seconds, changes


def plans(deployment: Deployment) -> list[Planned]:
    """What happens to every view that is declared or live."""
    live = {name: generation for name, generation in deployment.generations.live().items() if generation.source is None}
    serving = deployment.generations.serving(deployment.views.views.values())
    planned = [_planned(deployment, view, serving.get(view.name)) for view in deployment.views.views.values()]
    left = [generation for name, generation in live.items() if name not in deployment.views.views]
    return planned + [Planned(generation.view, "left over", generation.tag, None) for generation in left]


def _planned(deployment: Deployment, view: View, live: Generation | None) -> Planned:
    if live is not None and has_declaration_of(live, view):
        target, additions, seconds = Target(view, live.generation), list[str](), 0.0
        for store in view.stores:
            of_store = backend(store.name)
            added = of_store.missing(deployment.stores, target)
            additions += [f"+ {addition}" for addition in added]
            if added and of_store.added_per_s is not None:
                seconds += len(added) * _rows(deployment, target, live) / of_store.added_per_s
        if not additions:
            return Planned(view.name, "nothing", live.tag, view.tag)
        return Planned(view.name, "add in place", live.tag, view.tag, None, additions, seconds)
    rebuilt = estimate(deployment, view)
    if live is None:
        return Planned(view.name, "build", None, view.tag, rebuilt, seconds=rebuilt.seconds)
    action = "refuse" if live.version == view.version else "rebuild"
    return Planned(view.name, action, live.tag, view.tag, rebuilt, changes_since(live, view), rebuilt.seconds)


def _rows(deployment: Deployment, target: Target, live: Generation) -> int:
    """The rows of a generation, as a store estimates them, else the events that it was built from: hardly fewer."""
    sizes = (open_reader(store.name, deployment.stores).size(target).rows for store in target.view.stores)
    return next((rows for rows in sizes if rows is not None), live.events or 0)


def estimate(
    deployment: Deployment,
    view: View,
    selection: Selection = ALL,
    choice: EngineChoice = EngineChoice.AUTO,
) -> Estimate:
    """How much a rebuild of `view` would read, and its duration at the last measured rate: its own, else any view's."""
    ends = ends_of(deployment.log, sources([view], deployment.settings))
    firsts = {source: deployment.log.first(*topic_and_partition(source)) for source, end in ends.items() if end}
    ranges = selection.ranges(ends)
    offsets = sum(max(0, stop - max(start, firsts.get(source, 0))) for source, (start, stop) in ranges.items())
    rate = last_bulk_rate(view.name, deployment.generations.all())
    why = why_spark(view, offsets, choice)
    return Estimate(view.name, offsets, offsets / rate if rate else None, "local" if why is None else "spark", why)


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
    events. The stores and the API serve it under its own name. `replay drop NAME` removes it. Columns that it looks up
    in other views show their rows as they are now, and not as of these events.

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
                print_json({"views": [asdict(estimated) for estimated in estimates]})
            for estimated in estimates if not as_json else ():
                say(estimated.text())
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
        outcome.done.sort(key=lambda result: order.get(result.view, 0))
        _report(outcome, took_s or sum(result.seconds for result in outcome.done), startup_s, as_json)

    if name and (note := looked_up_now(name, views[0])):
        errors().print(note, soft_wrap=True)
    (on_each(by_name, build_part, report) if name else on_all(by_name, build_all, report)).exit()


def looked_up_now(name: str, view: View) -> str:
    """What a view made with --as does not show as of its events; empty if it shows all so."""
    columns = ", ".join(sorted(view.looked_up))
    return f'"{name}" shows {columns} as they are now: they are looked up in other views' if columns else ""


def _report(outcome: Outcome[Rebuilt], seconds: float, startup_s: float, as_json: bool) -> None:
    if as_json:
        events = sum(result.offsets if result.events is None else result.events for result in outcome.done)
        rate = events / seconds if seconds else 0.0
        outcome.print_json(to_json=asdict, events_per_s=rate, startup_s=round(startup_s, 3))
    else:
        for result in outcome.done:
            # nobody counts the rows of a stream view
            read = f"{result.offsets:,} offsets of the log" if result.events is None else f"{result.events:,} events"
            size = f"{result.events or 0:,} records" if result.rows is None else f"{read}, {result.rows:,} rows"
            counts = {"unreadable records skipped": result.skipped, "patches refused by a store": result.refused}
            listed = " and ".join(f"{number:,} {what}" for what, number in counts.items() if number)
            letters = f"; {listed}: see `replay dead-letters list`" if listed else ""
            say(f"{result.view} is now generation {result.generation}: {size}, {result.seconds:.1f} s{letters}")
    outcome.complain()
