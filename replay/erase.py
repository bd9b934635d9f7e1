"""`replay erase STREAM | EVENT`: erase events wherever the write side keeps them, and say what is left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.local_state.folders import UNUSED_DAYS
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import COMMANDS_DAYS, ERASED_DAYS, EVENTS, PATCHES_DAYS
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.erasing import Copies, Eraser, Target, find
from headwater.replay.output import AsJson, confirm, errors, one_line, print_json, say
from headwater.replay.prune import Yes
from headwater.replay.row import fold_rows
from headwater.replay.verbs import KNOWN, OnStep, steps

MAX_KEYS: Final = 200
"""Rows of one view that are folded again; with more, a rebuild is as good."""


@dataclass(frozen=True)
class RowsWithout:
    """What became of one view.

    rows: how many rows of it the events had changed; None: the events do not tell. replaced: how many of these were
    replaced in at least one store. left: why the view must be rebuilt; empty if it need not be.
    """

    view: str
    rows: int | None = None
    replaced: int = 0
    left: str = ""


def fold_without(deployment: Deployment, views: Iterable[View], erased: Target) -> list[RowsWithout]:
    """Fold the rows of erased events again, in every live view; a failure of one view does not stop the others."""
    with steps() as on_step:
        return [_of_view(deployment, view, erased, on_step) for view in views]


def _of_view(deployment: Deployment, view: View, erased: Target, on_step: OnStep) -> RowsWithout:
    if view.has_own_query:
        return RowsWithout(view.name, left="Spark computes its rows")
    keys = _keys(view, erased)
    if keys is None:
        return RowsWithout(view.name, left="the events do not tell which rows they changed")
    if len(keys) > MAX_KEYS:
        return RowsWithout(view.name, len(keys), left=f"the events changed {len(keys):,} rows")
    if not keys:
        return RowsWithout(view.name, 0)
    last = max(event.offset for event in erased.stored)
    after = {source_id(EVENTS, erased.events.partition): last}
    try:
        rows = fold_rows(
            deployment, view, keys, [store.name for store in view.stores], on_step, write=True, after=after
        ).rows
    except KNOWN as error:
        return RowsWithout(view.name, len(keys), left=str(error))
    replaced = {row.key for row in rows if row.outcome == "replaced"}
    unsure = sorted({row.store for row in rows if row.outcome == "undecided"})
    left = f"{', '.join(unsure)} did not apply the events, or kept changing the rows" if unsure else ""
    return RowsWithout(view.name, len(keys), len(replaced), left)


def _keys(view: View, erased: Target) -> Sequence[str] | None:
    """The rows that the events changed; None if they do not tell."""
    if not erased.stored:  # erased earlier, and compaction has removed them since
        return None
    keys = dict[str, None]()
    for event in erased.stored:
        rows = None if event.envelope is None else view.rows_of(event.envelope)
        if rows is None:
            return None
        keys |= dict.fromkeys(rows)
    return list(keys)


SHOWN: Final = 20
"""Events, letters and instances that the question lists."""
SEGMENT_DAYS: Final = 7
"""So long Kafka may keep a record after its time, until the segment is complete."""


def erase(
    target: Annotated[str, typer.Argument(metavar="STREAM | EVENT", help='"listing/L1", or "listing/L1/7".')],
    is_stream: Annotated[
        bool, typer.Option("--stream", help="It is a stream, although its name ends like the id of an event.")
    ] = False,
    is_event: Annotated[bool, typer.Option("--event", help="It is an event, although a stream has this name.")] = False,
    end_instances: Annotated[
        bool, typer.Option("--end-instances", help="End the process instances that handled the events.")
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be erased.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase one event, or all events of a stream.

    The handler that owns the stream's partition erases them: the events, the state that was computed from them, and its
    copy on the handler's disk. The version of the stream stays, so no id of an event is used again. Then dead letters
    and waiting records of processes with these events are removed, and the rows of table views that the events had
    changed are folded again without them. At the end it prints what is left, and until when.

    It asks for confirmation. It can be repeated, for example if it was interrupted.
    """
    if is_stream and is_event:
        raise typer.BadParameter("give --stream or --event, not both")
    with open_deployment(os.environ) as deployment:
        settings = deployment.settings
        commands, processes = CommandRegistry.load(settings.modules), ProcessRegistry.load(settings.modules)
        eraser = Eraser(deployment.log, commands, processes)
        target_found = find(deployment.log, target, is_stream=is_stream, is_event=is_event)
        copies = eraser.copies(target_found)
        readers = [view for view in deployment.views.views.values() if view.reads(EVENTS)]
        # if the types of the events are unknown, any of these may have rows of them
        views = [view for view in readers if not target_found.types or any(map(view.handles, target_found.types))]
        plan = Plan(settings, target_found, copies, views, end_instances)
        if dry_run:
            plan.report(as_json, "would erase")
            return
        if not yes:
            plan.ask()
        plan.version = eraser.erase(target_found)
        plan.copies = eraser.copies(target_found)  # also those of events that came meanwhile
        plan.ended = eraser.remove(target_found, plan.copies, end_instances=end_instances)
        plan.rows = fold_without(deployment, plan.views, target_found)
        plan.report(as_json, "erased")


@dataclass
class Plan:
    """What is erased, and what must be done with the rest.

    version: of the stream, which it keeps. rows: what became of those of each view.
    """

    settings: LogSettings
    target: Target
    copies: Copies
    views: Sequence[View]
    end_instances: bool
    version: int = 0
    ended: Sequence[str] = ()
    rows: Sequence[RowsWithout] = ()

    def ask(self) -> None:
        """Return if the user confirms: see `confirm`."""
        console = errors()
        for line in self._lines():
            console.print(one_line(line), soft_wrap=True)
        confirm("Erase them?", "erased")

    def report(self, as_json: bool, done: str) -> None:
        """Print what was erased, and what is left."""
        if as_json:
            print_json(self._to_json())
            return
        for line in self._lines():
            say(one_line(line))
        if done == "erased":
            say(f"erased; {self.target.stream} stays at version {self.version}")
            for row in self.rows:
                if row.rows is not None and not row.left:
                    say(f"{row.view}: of {row.rows} rows of these events, {row.replaced} were replaced")
        for line in self._left():
            say(one_line(line))

    def _lines(self) -> list[str]:
        modules = ", ".join(self.settings.modules)
        what = f"{self.target.stream}: " + (
            f"event {self.target.version}" if self.target.version else "the whole stream"
        )
        listed = [f"environment {self.settings.environment}, modules {modules}", what]
        listed += _shown("event", [f"{event.id} {event.description}" for event in self.target.stored])
        listed += _shown("dead letter", self.copies.letters)
        listed += _shown("waiting record", [key for keys in self.copies.parked.values() for key in keys])
        if self.end_instances:
            listed += _shown("process instance to end", self.copies.instances)
        return listed

    def _left(self) -> list[str]:
        settings, names = self.settings, " ".join(view.name for view in self.views)
        kept = [row for row in self.rows if row.left]
        rebuilt = " ".join(view.view for view in kept) if self.rows else names
        commands_days = min(COMMANDS_DAYS, settings.receipts_days) + 1
        receipts_days = settings.receipts_days + 2 + SEGMENT_DAYS
        left = [
            f"left in Kafka for up to {ERASED_DAYS} days: the erased records, which GET /streams/$all shows until then",
            f"left in Kafka for up to {commands_days} days: the commands that made them",
            f"left in Kafka for up to {receipts_days} days: the receipts of these commands (ids, types, reasons)",
            f"left in Kafka for up to {COMMANDS_DAYS + SEGMENT_DAYS} days: copies for processes",
            f"left in Kafka for up to {PATCHES_DAYS + SEGMENT_DAYS} days: patches of views",
            f"left for about {UNUSED_DAYS} day: copies on the disks of handlers that owned the partition earlier",
        ]
        if instances := [instance for instance in self.copies.instances if instance not in self.ended]:
            left.append(f"left until they end, or --end-instances: process instances {', '.join(instances[:SHOWN])}")
        left += [f"left in {view.view}: {view.left}" for view in kept]
        if rebuilt:
            left.append(f"left in views until you run: replay rebuild {rebuilt} && replay prune {names}")
        elif names:
            left.append(f"left in earlier generations of views until you run: replay prune {names}")
        left.append("left in other streams: what your rules or processes copied from these events")
        return left

    def _to_json(self) -> dict[str, Any]:
        return {
            "environment": self.settings.environment,
            "modules": list(self.settings.modules),
            "stream": self.target.stream,
            "version": self.version or None,
            "events": [event.id for event in self.target.stored],
            "letters": self.copies.letters,
            "waiting": [key for keys in self.copies.parked.values() for key in keys],
            "instances": self.copies.instances,
            "ended": list(self.ended),
            "views": [view.name for view in self.views],
            "rows": [asdict(row) for row in self.rows],
        }


def _shown(what: str, items: Sequence[str]) -> list[str]:
    lines = [f"{len(items)} {what}{'s' * (len(items) != 1)}"] if items else []
    lines += [f"  {item}" for item in items[:SHOWN]]
    return [*lines, f"  and {len(items) - SHOWN} more"] if len(items) > SHOWN else lines
