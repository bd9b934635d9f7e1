"""`headwater status`: everything of a deployment that can be late, stuck or dead, and what helps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Final

import typer

from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.programs.command_line import called_as, refuse_missing
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.replay.cli import EXIT_CODES, OnlyCommand
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.output import AsJson, errors, one_line, print_json, say, show_table
from headwater.replay.parts import Checks, Fault, Part, hanging_code, letters, letters_of, partitions, view_part
from headwater.replay.status import ATTENTION_EXIT
from headwater.replay.verbs import KNOWN

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(cls=OnlyCommand, epilog=EXIT_CODES)
def status(as_json: AsJson = False) -> None:
    """Show whether all of a deployment works: partitions, code that does not return, views, dead letters, sources.

    Exit code 3: something needs attention. A server that does not answer is such a thing.
    """
    log_to_stderr(os.environ, "status", default="WARNING")
    with open_deployment(os.environ) as deployment, errors().status("checking whether views make progress"):
        found = [part for what, look in LOOKS.items() for part in _looked(partial(look, deployment), what)]
    wrong = [each for each in found if each.problem]
    if as_json:
        print_json({"healthy": not wrong, "parts": [asdict(each) for each in found]})
    else:
        show_table(("part", "name", "state"), [(each.what, each.name, each.state) for each in found])
        for each in wrong:
            say(one_line(f"{each.what} {each.name}: {each.problem}"))
    if wrong:
        raise typer.Exit(ATTENTION_EXIT)


def _looked(look: Callable[[], Iterator[Part]], what: str) -> list[Part]:
    """What one look finds; an error is one of the problems, so that the others are looked at, too."""
    try:
        return list(look())
    except KNOWN as error:
        return [Part(what, "all", "unknown", str(error))]


def _views(deployment: Deployment) -> Iterator[Part]:
    """The views in their stores, as `replay status` shows them."""
    deployment.generations.prepare()
    lags = Lags(deployment.settings, deployment.stores, deployment.views, deployment.generations, deployment.log)
    checks = Checks(lags, {name: view.every_s for name, view in deployment.views.views.items()})
    yield from map(view_part, checks.settled())


def _sources(deployment: Deployment) -> Iterator[Part]:
    """Captured databases, as `headwater sources status` shows them."""
    if not SourceRegistry.load(deployment.settings.modules).sources:
        return
    refuse_missing("headwater status of captured databases", "sources", "httpx")
    capturing = "headwater.eventlog.capturing"  # with libraries of another extra, so it is imported only now
    for operator in import_module(f"{capturing}.cli").operators(None):
        with operator:
            found = import_module(f"{capturing}.source_status").status_of(operator)
        late = "" if found.lag_s is None else f", captured until {found.lag_s:.1f} s ago"
        fault: Fault = "source" if found.problems else ""
        yield Part("source", found.source, f"{found.state.lower()}{late}", "; ".join(found.problems), fault)


LOOKS: Final[Mapping[str, Callable[[Deployment], Iterator[Part]]]] = {
    "partitions": lambda deployment: partitions(deployment.log),
    "code": lambda deployment: hanging_code(deployment.log),
    "views": _views,
    "letters": lambda deployment: letters(letters_of(deployment.log)),
    "sources": _sources,
}
_COMMAND: Final = typer.main.get_command(app)


def main() -> None:
    """Run the command line."""
    _COMMAND(prog_name=called_as())
