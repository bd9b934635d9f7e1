"""What the verbs share: the views that they are given, progress, and reports of failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text
from typer.core import TyperCommand

from headwater.commands.errors import CommandError
from headwater.eventlog.audit.commands import AuditedCommands, Failed
from headwater.eventlog.errors import EventLogError
from headwater.projections.errors import ProjectionError, UnknownView
from headwater.projections.spark.setup.jars import JarError
from headwater.projections.spark.setup.java import JavaError
from headwater.replay.errors import (
    AmbiguousTarget,
    NameTaken,
    NoSuchLetter,
    NoTerminal,
    NothingToDrop,
    NothingToErase,
    ReplayError,
)
from headwater.replay.output import complain, errors, fail, print_json, say

if TYPE_CHECKING:
    from headwater.projections.generations.rebuild.rebuild import Step

Views = Annotated[list[str] | None, typer.Argument(metavar="VIEW", help="The views.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="Every view.")]
SkipPoison = Annotated[
    bool,
    typer.Option(
        "--skip-poison", help="Send unreadable records, and patches that a store refuses, to dead-letters and continue."
    ),
]
ReadAll = Annotated[bool, typer.Option("--all", help="Every view. This is the default.")]


def check_choice(
    views: Collection[str] | None, everything: bool, what: str = "views", *, reading: bool = False
) -> None:
    """Raise BadParameter unless either views or --all are given.

    reading: the command changes nothing, so without any argument it means all views.
    """
    if views and everything:
        raise typer.BadParameter(f"give {what} or --all, not both")
    if not (views or everything or reading):
        raise typer.BadParameter(f"give {what} or --all")


def chosen(views: Collection[str] | None, known: Collection[str]) -> list[str]:
    """The given views without duplicates, or all known views if none are given."""
    return list(dict.fromkeys(views or known))


OnStep = Callable[["Step"], None]
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


KNOWN: Final = (EventLogError, CommandError, ProjectionError, ReplayError, JarError, JavaError)
"""Errors whose message says what to do: they are printed in one line."""
FAILED_EXIT: Final = 1

Done = TypeVar("Done")


@dataclass(frozen=True)
class Failure:
    """A view for which the command failed, and why."""

    view: str
    error: str


@dataclass
class Outcome(Generic[Done]):
    """The outcome per view. unfinished: views that were not processed because the command was interrupted."""

    done: list[Done] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    def print_json(self, key: str = "views", to_json: Callable[[Done], Any] = lambda value: value, **more: Any) -> None:
        """Print the document of `--json`: the results under `key`, and the failures."""
        done = [to_json(result) for result in self.done]
        failed = [asdict(failure) for failure in self.failed]
        print_json({key: done, "failed": failed, "unfinished": self.unfinished, **more})

    def complain(self) -> None:
        """Print each failure with its reason on standard error, and a summary if there were several views."""
        for failure in self.failed:
            complain(failure.error)
        if len(self.failed) + len(self.done) + len(self.unfinished) > 1 and (self.failed or self.unfinished):
            parts = [f"{len(self.done)} done", f"{len(self.failed)} failed"]
            parts[1] += f" ({', '.join(failure.view for failure in self.failed)})" if self.failed else ""
            if self.unfinished:
                parts.append(f"{len(self.unfinished)} not finished ({', '.join(self.unfinished)})")
            complain("; ".join(parts))

    def report(self, as_json: bool, to_json: Callable[[Done], Any], line: Callable[[Done], str]) -> None:
        """Print the results, a line each or as JSON, and the failures."""
        if as_json:
            self.print_json(to_json=to_json)
        else:
            for result in self.done:
                say(line(result))
        self.complain()

    def exit(self, code: int = 0) -> None:
        """Exit with FAILED_EXIT if a view failed, else with `code`."""
        if self.failed:
            raise Failed("; ".join(f"{failure.view}: {failure.error}" for failure in self.failed), FAILED_EXIT)
        if code:
            raise typer.Exit(code)


def on_all(
    views: Iterable[str],
    act: Callable[[OnStep], Iterable[tuple[str, Done | Exception]]],
    report: Callable[[Outcome[Done]], None],
) -> Outcome[Done]:
    """Like `on_each`, for what is done on all views together.

    act: yields each view with its result, or why it failed.
    """
    outcome: Outcome[Done] = Outcome(unfinished=list(views))
    try:
        with steps() as on_step:
            for view, result in act(on_step):
                if isinstance(result, Exception):
                    outcome.failed.append(Failure(view, str(result)))
                else:
                    outcome.done.append(result)
                outcome.unfinished.remove(view)
    finally:
        report(outcome)
    return outcome


def on_each(
    views: Iterable[str], act: Callable[[str, OnStep], Done], report: Callable[[Outcome[Done]], None]
) -> Outcome[Done]:
    """Run `act` on each view, and `report` the outcome, also if an unexpected error ends the command early.

    act: called with the view's name, and a function to call with each of its steps.
    """
    names = list(views)

    def act_on_each(on_step: OnStep) -> Iterator[tuple[str, Done | Exception]]:
        for view in names:
            try:
                yield view, act(view, on_step)
            except KNOWN as error:
                yield view, error

    return on_all(names, act_on_each, report)


USAGE_ERRORS: Final = (
    UnknownView, NameTaken, NothingToDrop, NothingToErase, AmbiguousTarget, NoSuchLetter, NoTerminal
)  # fmt: skip


USAGE_EXIT: Final = 2
EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 failure; 2 wrong arguments; "
    "3 rows differ, the log is broken, a change is refused, or a view needs attention."
)


@contextmanager
def complaining() -> Iterator[None]:
    """Print every known error of a command in one line, and exit with code 1 or 2."""
    try:
        yield
    except USAGE_ERRORS as error:
        fail(error, USAGE_EXIT)
    except KNOWN as error:
        fail(error, FAILED_EXIT)


class Commands(AuditedCommands):
    """The verbs of `replay`."""

    program = "replay"
    refusals = USAGE_ERRORS

    def invoke(self, ctx: Any) -> Any:
        with complaining():
            return super().invoke(ctx)


class OnlyCommand(TyperCommand):
    """Likewise, for a program that is one command and changes nothing: Typer makes no group of it."""

    def invoke(self, ctx: Any) -> Any:
        with complaining():
            return super().invoke(ctx)
