"""`headwater status`: everything of a deployment that can be late, stuck or dead, and what helps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Final

import typer

from commands.owning.slow_code import slow_code
from eventlog.capturing.declaring import SourceRegistry
from eventlog.programs.command_line import called_as
from eventlog.programs.extras import refuse_missing
from eventlog.programs.logs import log_to_stderr
from eventlog.times import now_ms
from eventlog.topics import EVENTS
from projections.generations.upkeep.lag_reader import Lags
from projections.generations.upkeep.source_ends import last_time
from replay.cli import EXIT_CODES, OnlyCommand
from replay.dead_letters import letters_of
from replay.deployment import Deployment, open_deployment
from replay.outcome import KNOWN
from replay.output import AsJson, errors, one_line, print_json, say, show_table
from replay.status import ATTENTION_EXIT, FINE, Checks

OWNED_S: Final = 15.0
"""An owner of a partition appends something every 5 s; a takeover takes about 6 s."""
app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Part:
    """One line of the answer.

    what: the kind of part. name: which one. state: in words. problem: what is wrong, with what helps; else empty.
    """

    what: str
    name: str
    state: str
    problem: str = ""


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


def _partitions(deployment: Deployment) -> Iterator[Part]:
    """Whether partitions have owners: a handler that works appends heartbeats."""
    for partition in range(deployment.settings.partitions):
        last_ms = last_time(deployment.log, str(partition), deployment.log.end(EVENTS, partition))
        age_s = None if last_ms is None else (now_ms() - last_ms) / 1000
        if age_s is not None and age_s <= OWNED_S:
            yield Part("partition", str(partition), f"owned, {age_s:.1f} s ago")
            continue
        since = "never had a record" if age_s is None else f"had no record for {age_s:.0f} s"
        problem = f"it {since}, so no handler owns it, and its commands wait: start `headwater handler`, or see its log"
        yield Part("partition", str(partition), "not owned", problem)


def _code(deployment: Deployment) -> Iterator[Part]:
    """Commands and events whose code does not return."""
    for each in slow_code(deployment.log, now_ms()):
        yield Part("code", "hanging", "slow", each)


def _views(deployment: Deployment) -> Iterator[Part]:
    """The views in their stores, as `replay status` shows them."""
    deployment.generations.prepare()
    lags = Lags(deployment.settings, deployment.stores, deployment.views, deployment.generations, deployment.log)
    checks = Checks(lags, {name: view.every_s for name, view in deployment.views.views.items()})
    for each in checks.settled():
        behind = "" if not each.lag_events else f", {each.lag_events:,} events behind"
        needs = "" if each.standing in FINE else f"run `replay status {each.view}`"
        yield Part("view", f"{each.view} in {each.store}", f"{each.standing}{behind}", each.problem or needs)


def _letters(deployment: Deployment) -> Iterator[Part]:
    """Dead letters, by the topic of their records."""
    for topic, number in Counter(key.partition("/")[0] for key in letters_of(deployment)).items():
        help_ = "see `replay dead-letters list`; after a fix, `replay dead-letters retry`"
        yield Part("letters", topic, f"{number:,}", f"{number:,} records could not be processed: {help_}")


def _sources(deployment: Deployment) -> Iterator[Part]:
    """Captured databases, as `headwater sources status` shows them."""
    if not SourceRegistry.load(deployment.settings.modules).sources:
        return
    refuse_missing("headwater status of captured databases", "sources", "httpx")
    capturing = "eventlog.capturing"  # with libraries of another extra, so it is imported only now
    for operator in import_module(f"{capturing}.cli").operators(None):
        with operator:
            found = import_module(f"{capturing}.source_status").status_of(operator)
        late = "" if found.lag_s is None else f", captured until {found.lag_s:.1f} s ago"
        yield Part("source", found.source, f"{found.state.lower()}{late}", "; ".join(found.problems))


LOOKS: Final[Mapping[str, Callable[[Deployment], Iterator[Part]]]] = {
    "partitions": _partitions,
    "code": _code,
    "views": _views,
    "letters": _letters,
    "sources": _sources,
}
_COMMAND: Final = typer.main.get_command(app)


def main() -> None:
    """Run the command line."""
    _COMMAND(prog_name=called_as())
