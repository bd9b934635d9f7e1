"""How the command shows what it does: progress on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

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
from rich.text import Text

from projections.building import Step

console = Console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]


class RateColumn(ProgressColumn):
    """Events or patches a second."""

    def render(self, task: Task) -> Text:
        """The rate so far, empty until there is one."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


@contextmanager
def steps(quiet: bool) -> Iterator[Callable[[Step], None]]:
    """What to call with each step of a rebuild; a bar a phase, unless `quiet`."""
    if quiet:
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=errors) as progress:
        tasks: dict[tuple[str, str], TaskID] = {}

        def show(step: Step) -> None:
            name = step.view, step.phase
            if name not in tasks:
                tasks[name] = progress.add_task(f"{step.view}: {step.phase}", total=step.total or None)
            progress.update(tasks[name], completed=step.done, total=step.total or None)

        yield show


def print_json(document: Any) -> None:
    """One line on standard output."""
    print(json.dumps(document))


def fail(error: Exception, code: int) -> None:
    """Say what went wrong, in one line on standard error, and end with this exit code."""
    errors.print(f"replay: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
