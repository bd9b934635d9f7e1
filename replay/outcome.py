"""Runs a command on several views: a failure of one view does not stop the others and is reported at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Generic, TypeVar

import typer

from headwater.commands.errors import CommandError
from headwater.eventlog.audit.commands import Failed
from headwater.eventlog.errors import EventLogError
from headwater.projections.errors import ProjectionError
from headwater.projections.spark.setup.jars import JarError
from headwater.projections.spark.setup.java import JavaError
from headwater.replay.errors import ReplayError
from headwater.replay.output import complain, print_json, say
from headwater.replay.progress import OnStep, steps

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

    def print_json(self, key: str = "views", to_json: Callable[[Done], Any] = lambda each: each, **more: Any) -> None:
        """Print the document of `--json`: the results under `key`, and the failures."""
        done = [to_json(each) for each in self.done]
        failed = [asdict(each) for each in self.failed]
        print_json({key: done, "failed": failed, "unfinished": self.unfinished, **more})

    def complain(self) -> None:
        """Print each failure with its reason on standard error, and a summary if there were several views."""
        for each in self.failed:
            complain(each.error)
        if len(self.failed) + len(self.done) + len(self.unfinished) > 1 and (self.failed or self.unfinished):
            parts = [f"{len(self.done)} done", f"{len(self.failed)} failed"]
            parts[1] += f" ({', '.join(each.view for each in self.failed)})" if self.failed else ""
            if self.unfinished:
                parts.append(f"{len(self.unfinished)} not finished ({', '.join(self.unfinished)})")
            complain("; ".join(parts))

    def report(self, as_json: bool, to_json: Callable[[Done], Any], line: Callable[[Done], str]) -> None:
        """Print the results, a line each or as JSON, and the failures."""
        if as_json:
            self.print_json(to_json=to_json)
        else:
            for each in self.done:
                say(line(each))
        self.complain()

    def exit(self, code: int = 0) -> None:
        """Exit with FAILED_EXIT if a view failed, else with `code`."""
        if self.failed:
            raise Failed("; ".join(f"{each.view}: {each.error}" for each in self.failed), FAILED_EXIT)
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
    outcome: Outcome[Done] = Outcome(unfinished=list(views))
    try:
        with steps() as on_step:
            while outcome.unfinished:
                view = outcome.unfinished[0]
                try:
                    outcome.done.append(act(view, on_step))
                except KNOWN as error:
                    outcome.failed.append(Failure(view, str(error)))
                outcome.unfinished.pop(0)
    finally:
        report(outcome)
    return outcome
