"""`replay plan`: what a deployment of this code would rebuild; and how long a rebuild takes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import typer
from rich.table import Table

from eventlog.topics import EVENTS
from projections.generations import Generation
from projections.selection import ALL, Selection
from projections.view import TableView
from replay.deployment import Deployment, open_deployment
from replay.output import AsJson, console, print_json

REFUSED_EXIT = 3


@dataclass(frozen=True)
class Estimate:
    """What a rebuild would read. offsets: of `events`, gaps and heartbeats among them; seconds: None where no rebuild
    was ever measured."""

    view: str
    offsets: int
    seconds: float | None

    def text(self) -> str:
        """For people."""
        how_long = "no rebuild was measured yet" if self.seconds is None else f"about {self.seconds:,.0f} s"
        return f"{self.view}: {self.offsets:,} offsets of the log to read, {how_long}"


@dataclass(frozen=True)
class Planned:
    """What becomes of a view when this code is started.

    action: "nothing", "build" (it is new), "rebuild" (a new version), "refuse" (changed, with the version that it had)
    or "left over" (nobody declares it any more). changes: lines of its declaration, as a diff.
    """

    view: str
    action: str
    live: str | None
    declared: str | None
    estimate: Estimate | None = None
    changes: list[str] = field(default_factory=list)


def plan(as_json: AsJson = False) -> None:
    """Show what starting the read side with this code would build, rebuild or refuse. Exit code 3: it would refuse."""
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        planned = plans(deployment)
    if as_json:
        print_json({"views": [asdict(each) for each in planned]})
    else:
        table = Table("view", "live", "declared", "what happens")
        for each in planned:
            what = f"{each.action}: {each.estimate.text()}" if each.estimate else each.action
            table.add_row(each.view, each.live or "-", each.declared or "-", "\n".join([what, *each.changes]))
        console.print(table)
    if any(each.action == "refuse" for each in planned):
        raise typer.Exit(REFUSED_EXIT)


def plans(deployment: Deployment) -> list[Planned]:
    """What becomes of every view that is declared or live."""
    live = {name: each for name, each in deployment.generations.live().items() if each.source is None}
    found = [_planned(deployment, view, live.get(view.name)) for view in deployment.views.views.values()]
    left = [each for name, each in live.items() if name not in deployment.views.views]
    return found + [Planned(each.view, "left over: `replay drop` removes it", each.tag, None) for each in left]


def _planned(deployment: Deployment, view: TableView, live: Generation | None) -> Planned:
    if live is None:
        return Planned(view.name, "build", None, view.tag, estimate(deployment, view))
    if live.fingerprint == view.fingerprint:
        return Planned(view.name, "nothing", live.tag, view.tag)
    changes = declaration_changes(live.declaration, view.declaration)
    if live.version == view.version:
        return Planned(view.name, "refuse", live.tag, view.tag, None, changes)
    return Planned(view.name, "rebuild", live.tag, view.tag, estimate(deployment, view), changes)


def declaration_changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines that are gone (-) and new (+)."""
    return [line for line in difflib.ndiff(before, after) if line[0] in "-+"]


def estimate(deployment: Deployment, view: TableView, selection: Selection = ALL) -> Estimate:
    """What a rebuild of `view` would read, and its duration at the rate last measured: its own, else any view's."""
    ends = {each: deployment.log.end(EVENTS, each) for each in range(deployment.settings.partitions)}
    firsts = {each: deployment.log.first(EVENTS, each) for each in ends}
    ranges = selection.ranges(ends)
    offsets = sum(max(0, stop - max(start, firsts[each])) for each, (start, stop) in ranges.items())
    measured = [each for each in deployment.generations.all() if each.events and each.seconds]
    own = [each for each in measured if each.view == view.name] or measured
    if not own:
        return Estimate(view.name, offsets, None)
    last = max(own, key=lambda each: each.created_at)
    return Estimate(view.name, offsets, offsets / ((last.events or 1) / (last.seconds or 1.0)))
