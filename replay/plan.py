"""`replay plan`: what a deployment of this code would rebuild, and how long a rebuild takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import typer

from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.engines import EngineChoice, why_spark
from headwater.projections.generations.registry.event_versions import changes
from headwater.projections.generations.registry.generation import Generation, changes_since, has_declaration_of
from headwater.projections.generations.registry.sources import ALL, Selection, ends_of, sources
from headwater.projections.generations.upkeep.rates import last_bulk_rate
from headwater.projections.stores.open import backend, open_reader
from headwater.projections.stores.store import Target
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.output import AsJson, Cell, complain, one_line, print_json, show_notes, show_table
from headwater.replay.verbs import ReadAll, Views, check_choice

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
        deployment.check_known(views, {each.view for each in planned})
        planned = [each for each in planned if not views or each.view in views]
        events = CommandRegistry.load(deployment.settings.modules).events.values()
        changed = changes(events, deployment.generations.event_versions())
        if views:  # only those that they read
            read_by = [view for name, view in deployment.views.views.items() if name in views]
            changed = {name: why for name, why in changed.items() if any(view.handles(name) for view in read_by)}
    if as_json:
        print_json({"views": [asdict(each) for each in planned], "events": changed})
    else:
        show_table(COLUMNS, [_row(each) for each in planned], plain_only=("changes",))
        show_notes([f"{each.view}: {change}" for each in planned for change in each.changes])
        left = [each.view for each in planned if each.action == "left over"]
        show_notes([f"{view}: not declared by this code; `replay drop {view}` removes it" for view in left])
        for problem in (each for problems in changed.values() for each in problems):
            complain(one_line(problem))
    if changed or any(each.action == "refuse" for each in planned):
        raise typer.Exit(REFUSED_EXIT)


def _row(each: Planned) -> Sequence[Cell]:
    offsets = each.estimate.offsets if each.estimate else None
    changes = "; ".join(each.changes) or None
    versions = [tag and tag.rpartition("@")[2] for tag in (each.live, each.declared)]
    return each.view, *versions, each.action, offsets, each.seconds, changes


def plans(deployment: Deployment) -> list[Planned]:
    """What happens to every view that is declared or live."""
    live = {name: each for name, each in deployment.generations.live().items() if each.source is None}
    serving = deployment.generations.serving(deployment.views.views.values())
    found = [_planned(deployment, view, serving.get(view.name)) for view in deployment.views.views.values()]
    left = [each for name, each in live.items() if name not in deployment.views.views]
    return found + [Planned(each.view, "left over", each.tag, None) for each in left]


def _planned(deployment: Deployment, view: View, live: Generation | None) -> Planned:
    if live is not None and has_declaration_of(live, view):
        target, additions, seconds = Target(view, live.generation), list[str](), 0.0
        for store in view.stores:
            of_store = backend(store.name)
            added = of_store.missing(deployment.stores, target)
            additions += [f"+ {each}" for each in added]
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
    firsts = {each: deployment.log.first(*topic_and_partition(each)) for each, end in ends.items() if end}
    ranges = selection.ranges(ends)
    offsets = sum(max(0, stop - max(start, firsts.get(each, 0))) for each, (start, stop) in ranges.items())
    rate = last_bulk_rate(view.name, deployment.generations.all())
    why = why_spark(view, offsets, choice)
    return Estimate(view.name, offsets, offsets / rate if rate else None, "local" if why is None else "spark", why)
