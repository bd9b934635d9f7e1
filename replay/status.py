"""`replay status` and `headwater status`: the state of each view in each store, and of everything that can be late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.capturing.naming import source_topics
from headwater.eventlog.erasing.person import brought_back
from headwater.eventlog.kafka.admin import existing_topics
from headwater.eventlog.personal.installed import opened_from
from headwater.eventlog.personal.ports import KEYS_VARIABLE
from headwater.eventlog.programs.command_line import called_as, refuse_missing
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.source_positions import positions_text
from headwater.eventlog.topics import CAPTURED
from headwater.projections.generations.upkeep.lag import STALLED_S, Lag
from headwater.projections.generations.upkeep.lag_reader import Lags
from headwater.projections.running_parts import STREAMS
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.output import (
    AsJson,
    complain,
    errors,
    one_line,
    output,
    print_json,
    say,
    show_notes,
    show_table,
    terminal_table,
)
from headwater.replay.parts import FINE, Checks, Fault, Part, hanging_code, letters, letters_of, partitions, view_part
from headwater.replay.verbs import EXIT_CODES, FAILED_EXIT, KNOWN, OnlyCommand, ReadAll, Views, check_choice

ATTENTION_EXIT: Final = 3
EVERY_S: Final = 2.0
COLUMNS: Final = ("view", "store", "standing", "gen", "events behind", "seconds behind")
PLAIN_COLUMNS: Final = ("version", "position", "problem")


def status(
    views: Views = None,
    everything: ReadAll = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="With --watch: seconds between two refreshes.", min=0.1)] = EVERY_S,
    as_json: AsJson = False,
) -> None:
    """Show the state of each VIEW in each of its stores: its generation, and how far it is behind the log.

    Exit code 3: a view needs attention, because it is stalled, lost, not built or paused, or its store is unavailable.
    With --watch, the exit code is that of the last refresh. With --json or without a terminal, positions are shown too.
    """
    check_choice(views, everything, reading=True)
    with open_deployment(os.environ) as opened:
        opened.generations.prepare()
        chosen = opened.declared(views).values()
        checks = Checks(
            Lags(opened.settings, opened.stores, opened.views, opened.generations, opened.log),
            {probe.name: probe.every_s for probe in chosen},
        )
        if watch:
            code = _watch(checks.look, every, as_json)
        else:
            up_to_s = STALLED_S + max(probe.every_s for probe in chosen)
            with errors().status(f"checking whether views make progress, for up to {up_to_s:g} s"):
                lags = checks.settled()
            _show(lags, as_json)
            code = exit_code(lags)
    if code:
        raise typer.Exit(code)


def exit_code(lags: list[Lag]) -> int:
    """0, or ATTENTION_EXIT if a view needs attention."""
    return 0 if all(lag.standing in FINE for lag in lags) else ATTENTION_EXIT


def _show(lags: list[Lag], as_json: bool) -> None:
    if as_json:
        print_json([lag.to_json() for lag in lags])
        return
    rows = [(*_row(lag), lag.version, positions_text(lag.position) or None, lag.problem or None) for lag in lags]
    show_table((*COLUMNS, *PLAIN_COLUMNS), rows, plain_only=PLAIN_COLUMNS)
    show_notes([*_problems(lags), *_streams(lags)])


def _watch(look: Callable[[], list[Lag]], every: float, as_json: bool) -> int:
    """Refresh until Ctrl-C, in place on a terminal. Returns the exit code of the last refresh."""
    if as_json or not output().is_terminal:
        return _repeat(look, every, lambda lags: _show(lags, as_json), complain)
    with Live(console=output(), auto_refresh=False) as live:
        return _repeat(
            look,
            every,
            lambda lags: live.update(_page(lags, every), refresh=True),
            lambda error: live.update(Text(f"{_now()}: {error}", style="red"), refresh=True),
        )


def _repeat(
    look: Callable[[], list[Lag]], every: float, show: Callable[[list[Lag]], None], report: Callable[[str], None]
) -> int:
    code = 0
    with suppress(KeyboardInterrupt):
        while True:
            try:
                lags = look()
            except KNOWN as error:  # an unavailable server may come back
                report(str(error))
                code = FAILED_EXIT
            else:
                show(lags)
                code = exit_code(lags)
            time.sleep(every)
    return code


def _page(lags: list[Lag], every: float) -> RenderableType:
    heading = Text(f"{_now()}, refreshed every {every:g} s until Ctrl-C", style="dim")
    table = terminal_table(COLUMNS, [_row(lag) for lag in lags], empty=not lags)
    return Group(heading, table, *(Text(line) for line in (*_problems(lags), *_streams(lags))))


def _row(lag: Lag) -> tuple[str | int | float | None, ...]:
    return lag.view, lag.store, lag.standing, lag.generation, lag.lag_events, lag.freshness_s


def _problems(lags: list[Lag]) -> list[str]:
    """What is wrong, without what `_streams` says of queries that failed."""
    return [
        f"{lag.view} in {lag.store} is {lag.standing}: {lag.problem}"
        for lag in lags
        if lag.problem not in ("", lag.failure)
    ]


def _streams(lags: list[Lag]) -> list[str]:
    """What the queries of stream views have done, a line per view, and of which that is not known here."""
    known = {lag.view: f"{lag.view}: {lag.stream.text()}" for lag in lags if lag.stream}
    unknown = dict.fromkeys(lag.view for lag in lags if lag.query == STREAMS and lag.stream is None)
    if not unknown:
        return list(known.values())
    return [
        *known.values(),
        f"not on this machine, or without records so far: the queries of {', '.join(unknown)}; what they do is shown "
        "on the machine of `headwater projections`",
    ]


def _now() -> str:
    return f"{datetime.now(UTC):%H:%M:%S} UTC"


app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command("status", cls=OnlyCommand, epilog=EXIT_CODES)
def whole_status(as_json: AsJson = False) -> None:
    """Show whether all of a deployment works: partitions, code that does not return, views, dead letters, sources.

    Exit code 3: something needs attention. A server that does not answer is such a thing.
    """
    log_to_stderr(os.environ, "status", default="WARNING")
    with open_deployment(os.environ) as deployment, errors().status("checking whether views make progress"):
        parts = list[Part]()
        for what, look in LOOKS.items():
            try:
                parts += list(look(deployment))
            except KNOWN as error:  # one of the problems, so that the others are looked at, too
                parts.append(Part(what, "all", "unknown", str(error)))
    wrong = [part for part in parts if part.problem]
    if as_json:
        print_json({"healthy": not wrong, "parts": [asdict(part) for part in parts]})
    else:
        show_table(("part", "name", "state"), [(part.what, part.name, part.state) for part in parts])
        for part in wrong:
            say(one_line(f"{part.what} {part.name}: {part.problem}"))
    if wrong:
        raise typer.Exit(ATTENTION_EXIT)


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
            statuses = import_module(f"{capturing}.source_status").status_of(operator)
        late = "" if statuses.lag_s is None else f", captured until {statuses.lag_s:.1f} s ago"
        fault: Fault = "source" if statuses.problems else ""
        yield Part("source", statuses.source, f"{statuses.state.lower()}{late}", "; ".join(statuses.problems), fault)


def _keys(deployment: Deployment) -> Iterator[Part]:
    """The store of keys, if it is known here: whether it is the right one, and has no key that was destroyed."""
    if not os.environ.get(KEYS_VARIABLE) or not (history := (records := LoggedKeys(os.environ)).read()).stores:
        return
    with closing(opened_from(os.environ, deployment.settings.environment, records)) as vault:
        persons = brought_back(vault.store, history)
    problem = (
        f"it was restored from an earlier backup, and erased persons are readable again ({len(persons)}): run "
        "headwater erase --restored"
    )
    yield Part("keys", "store", "restored" if persons else "fine", problem if persons else "")


def _undeclared(deployment: Deployment) -> Iterator[Part]:
    """What the deployment has, and the modules here do not declare: views, and captured tables with their topics.

    A source without a declaration needs attention if its connector is still there: its database keeps what that has not
    captured.
    """
    deployment.generations.prepare()
    views = {generation.source or generation.view for generation in deployment.generations.all()}
    yield from (Part("view", name, "not declared") for name in sorted(views - deployment.views.views.keys()))
    settings, sources = deployment.settings, SourceRegistry.load(deployment.settings.modules).sources
    declared = {spec.name for source in sources.values() for spec in source_topics(source, settings)}
    prefix = settings.topic(CAPTURED)
    there = {name.removeprefix(settings.topic("")) for name in existing_topics(settings) if name.startswith(prefix)}
    for name in sorted(name for name in there - declared if name.split(".")[1] in sources):
        yield Part("topic", name, "not declared")
    for source in sorted({name.split(".")[1] for name in there} - sources.keys()):
        refuse_missing("headwater status of captured databases", "sources", "httpx")
        capturing = "headwater.eventlog.capturing"
        connect = import_module(f"{capturing}.settings").read_connect(os.environ)
        with closing(import_module(f"{capturing}.kafka_connect").KafkaConnect(connect)) as client:
            state = client.state(f"{settings.topic(CAPTURED)}{source}")
        problem = (
            "no module declares it, and its connector is there, so that its database keeps what is not captured: "
            f"declare it, or run headwater sources remove {source} with the module that declared it"
        )
        yield Part("source", source, "not declared", problem if state else "", "nobody" if state else "")


LOOKS: Final[Mapping[str, Callable[[Deployment], Iterator[Part]]]] = {
    "partitions": lambda deployment: partitions(deployment.log),
    "code": lambda deployment: hanging_code(deployment.log),
    "views": _views,
    "letters": lambda deployment: letters(letters_of(deployment.log)),
    "sources": _sources,
    "keys": _keys,
    "declarations": _undeclared,
}
_COMMAND: Final = typer.main.get_command(app)


def main() -> None:
    """Run the command line."""
    _COMMAND(prog_name=called_as())
