"""The progress of a rebuild on standard error: one bar per view on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from headwater.projections.generations.rebuild.rebuild import Step
from headwater.replay.output import errors

OnStep = Callable[[Step], None]
LINE_EVERY_S: Final = 10.0
"""Seconds between two lines about one phase, if there is no bar."""


@contextmanager
def steps() -> Iterator[OnStep]:
    """A function to call with each step of a rebuild."""
    console = errors()
    if not console.is_terminal:
        yield Lines(lambda text: console.print(text, soft_wrap=True))
        return
    with bars(console) as progress:
        yield Bars(progress)


def bars(console: Console) -> Progress:
    """Draws the bars, as wide as the terminal, and removes them at the end."""
    return Progress(
        # uses the remaining width
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        TextColumn("{task.fields[phase]}"),
        BarColumn(bar_width=12),
        CountColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
        transient=True,
    )


class CountColumn(ProgressColumn):
    """Done and total, empty if nothing is counted."""

    def render(self, task: Task) -> Text:
        """For example `1,200,000/2,000,000`."""
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}" if task.total else "", justify="right")


class RateColumn(ProgressColumn):
    """Events or patches per second."""

    def render(self, task: Task) -> Text:
        """The rate so far, empty until it is known."""
        return Text(f"{task.speed:,.0f}/s" if task.speed and task.total else "", justify="right")


class Bars:
    """One bar per view, for its current phase."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, tuple[TaskID, str]] = {}

    def __call__(self, step: Step) -> None:
        task, phase = self._tasks.get(step.view, (None, ""))
        if task is None or phase != step.phase:
            if task is not None:
                self._progress.remove_task(task)  # else its total would stay in a phase without counts
            task = self._progress.add_task(step.view, total=None, phase=step.phase)
            self._tasks[step.view] = task, step.phase
        self._progress.update(task, completed=step.done, total=step.total or None)


class Lines:
    """One line at the start of a phase, then one per LINE_EVERY_S. now: a clock in seconds."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._write, self._now = write, now
        self._written: dict[tuple[str, str], float] = {}

    def __call__(self, step: Step) -> None:
        name, at = (step.view, step.phase), self._now()
        if name in self._written and at - self._written[name] < LINE_EVERY_S:
            return
        counted = f" {step.done:,} of {step.total:,}" if step.done and step.total else ""
        self._write(f"{step.view}: {step.phase}{counted}")
        self._written[name] = at
