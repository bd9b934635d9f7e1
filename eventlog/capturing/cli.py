"""`headwater sources`: registers captured databases with Kafka Connect, and operates them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console

from headwater.eventlog.audit.commands import AuditedCommand, AuditedCommands, Declined, Refused
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.capturing.errors import SourceDeclarationError
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.capturing.settings import SourceSettings, read_connect
from headwater.eventlog.capturing.source_status import SourceMetrics, SourceStatus, status_of
from headwater.eventlog.capturing.watching import Watcher
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.command_line import called_as, print_error
from headwater.eventlog.programs.logs import JSON, format_of, log_to_stderr
from headwater.eventlog.programs.logs import complain as log_complaint
from headwater.eventlog.programs.metrics import collecting, serve_metrics
from headwater.eventlog.programs.stopping import set_by_signal
from headwater.eventlog.settings import LogSettings

FAILED_EXIT: Final = 1
ATTENTION_EXIT: Final = 3
STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
WATCH_RETRY_S: Final = 2.0
"""How long `watch` repeats a request to Kafka Connect: it looks again soon, and has other sources to look at."""
EXIT_CODES: Final = "Exit codes: 0 success; 1 failure; 2 wrong arguments; 3 a source needs attention."


class Commands(AuditedCommands):
    """Prints every known error, one line per problem, and exits with code 1."""

    program = "sources"
    urgent = frozenset({"pause"})

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EventLogError as error:
            for line in str(error).splitlines():
                complain(line)
            raise typer.Exit(FAILED_EXIT) from error


app = typer.Typer(
    cls=Commands, epilog=EXIT_CODES, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)
Sources = Annotated[list[str] | None, typer.Argument(help="Names of sources; default: all of the deployment.")]


@app.callback()
def start(context: typer.Context) -> None:
    """Capture the databases of a deployment with Debezium.

    The sources are those of the modules in HEADWATER_MODULES. Results go to standard output, errors to standard error.
    """
    default = "INFO" if context.invoked_subcommand == "watch" else "WARNING"
    log_to_stderr(os.environ, "sources", default)


@app.command(cls=AuditedCommand)
def apply(
    sources: Sources = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
) -> None:
    """Check the database, then create or change topics, publication and connector as declared.

    Rows of tables and columns that were not captured before are read from the database.
    """
    for operator in operators(sources):
        with operator:
            changed = operator.apply(dry_run)
        applied = "nothing was changed" if dry_run else "applied"
        say(f"{operator.source.name}: {applied if changed else 'as declared'}")


@app.command()
def status(
    sources: Sources = None, as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False
) -> None:
    """Show the connector, snapshot and lag of sources. Exit code 0 only if none needs attention."""
    statuses = []
    for operator in operators(sources):
        with operator:
            statuses.append(status_of(operator))
    if as_json:
        print(json.dumps({"sources": [source.to_json() for source in statuses]}), flush=True)
    else:
        for source in statuses:
            _show(source)
    if not all(source.is_healthy for source in statuses):
        raise typer.Exit(ATTENTION_EXIT)


@app.command(cls=AuditedCommand)
def pause(sources: Sources = None) -> None:
    """Stop capturing until `resume`. The database keeps its write-ahead log meanwhile."""
    _on_each(sources, Operator.pause, "paused")


@app.command(cls=AuditedCommand)
def resume(sources: Sources = None) -> None:
    """Continue capturing where it was paused."""
    _on_each(sources, Operator.resume, "running")


@app.command(cls=AuditedCommand)
def restart(sources: Sources = None) -> None:
    """Restart connectors, also failed ones, and wait until they run."""
    _on_each(sources, Operator.restart, "running")


@app.command()  # a service: what it does, it does by itself, and logs
def watch(sources: Sources = None) -> None:
    """Restart connectors that fail, and let them read tables that were not read, until SIGINT or SIGTERM.

    A connector fails for good if its database goes away while it starts. It is restarted once the database answers. Run
    this beside Kafka Connect all the time. Problems are logged once each.
    """
    stopped = _end_on_signals()
    with ExitStack() as opened:
        if serve_metrics(os.environ, "sources") is not None:
            measured = SourceMetrics(opened.enter_context(operator) for operator in operators(sources, WATCH_RETRY_S))
            opened.enter_context(collecting(measured))
            threading.Thread(target=measured.run, args=[stopped.wait], name="metrics", daemon=True).start()
        chosen = [opened.enter_context(operator) for operator in operators(sources, WATCH_RETRY_S)]
        Watcher(chosen).run(stopped.wait)


@app.command(cls=AuditedCommand)
def snapshot(
    table: Annotated[str, typer.Argument(help="A captured table, such as public.customers.")],
    where: Annotated[str, typer.Option(help="Read only rows that satisfy this SQL condition.")] = "",
    source: Annotated[str, typer.Option(help="Its source, if several have a table of this name.")] = "",
) -> None:
    """Read the rows of a table again, while changes continue to be captured."""
    for operator in operators([source] if source else None):
        if source or any(captured.table == table for captured in operator.source.tables):
            with operator:
                operator.snapshot([operator.source.table(table)], where)
            return
    raise SourceDeclarationError(f'no source of the deployment captures the table "{table}"')


@app.command(cls=AuditedCommand)
def sweep(
    sources: Sources = None,
    yes_delete: Annotated[int, typer.Option(help="Delete up to this many rows of a table, as a refusal said.")] = 0,
) -> None:
    """Delete from the topics the rows that the tables no longer have.

    For deletes that were not captured: after a TRUNCATE, or after a lost replication slot, once all is read again.
    If that is more than a tenth of a table, and more than 100 rows, it refuses, and says how many.
    """
    _show_deployment()
    _on_each(sources, lambda operator: operator.sweep(yes_delete), "running")


@app.command(cls=AuditedCommand)
def remove(
    sources: Annotated[list[str], typer.Argument(help="Names of sources.")],
    topics: Annotated[bool, typer.Option("--topics", help="Delete the captured records too.")] = False,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="The captured database is gone, and another one has its address.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove connectors, replication slots and publications, after asking.

    A later `apply` reads all tables again; rows that were deleted in the meantime stay in the topics until `sweep`.
    """
    chosen = list(operators(sources))
    _show_deployment()
    what = "connector, slot, publication and all captured records" if topics else "connector, slot and publication"
    _confirm(f"remove {what} of {', '.join(sources)}?", yes)
    for operator in chosen:
        with operator:
            operator.remove(topics, replaced)
        say(f"{operator.source.name}: removed")


def main() -> None:
    """Run the command line."""
    app(prog_name=called_as())


def _end_on_signals() -> threading.Event:
    """Let SIGINT and SIGTERM end the process at once with exit code 0, also while it waits for a server.

    Python drops an exception that is raised in a finalizer, so the event is set too.
    """
    stopped = threading.Event()

    def end(*_: object) -> NoReturn:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        set_by_signal(stopped)
        raise SystemExit(0)

    for number in STOPPING:
        signal.signal(number, end)
    return stopped


def operators(names: list[str] | None, retry_s: float | None = None) -> Iterator[Operator]:
    """Those of the sources with these names; None: of all of the deployment. retry_s: see KafkaConnect."""
    log = LogSettings.from_environment(os.environ)
    registry = SourceRegistry.load(log.modules)
    chosen = [registry.source(name) for name in names] if names else list(registry.sources.values())
    if not chosen:
        raise SourceDeclarationError(
            f"the modules of the deployment ({', '.join(log.modules)}) declare no source: add one to HEADWATER_MODULES"
        )
    for source in chosen:
        settings = SourceSettings.from_environment(source, os.environ)
        yield Operator(source, settings, KafkaConnect(read_connect(os.environ), retry_s), say)


def _on_each(sources: list[str] | None, act: Callable[[Operator], None], done: str) -> None:
    for operator in operators(sources):
        with operator:
            act(operator)
        say(f"{operator.source.name}: {done}")


def _show_deployment() -> None:
    """Show whose records are about to be deleted."""
    note(LogSettings.from_environment(os.environ).described)


def _show(found: SourceStatus) -> None:
    kept = None
    if found.retained_bytes is not None:
        size = f"{found.retained_bytes:,} bytes"
        kept = (
            f"slot keeps {size} ({found.wal_status})" if found.wal_status else f"the database keeps {size} of its log"
        )
    parts = [
        f"{found.source}: {found.state.lower()}",
        found.snapshot and f"{found.snapshot.kind} snapshot {found.snapshot.state.lower().replace('_', ' ')}",
        None if found.lag_bytes is None else f"{found.lag_bytes:,} bytes behind",
        None if found.lag_s is None else f"captured until {found.lag_s:.1f} s ago",
        kept,
    ]
    say("; ".join(part for part in parts if part))
    for problem in found.problems:
        complain(f'source "{found.source}": {problem}')
    for warning in found.warnings:
        note(f'sources: warning: source "{found.source}": {warning}')


def _confirm(question: str, yes: bool) -> None:
    """Return if the user confirms; exits with code 1 if not, or if there is no terminal to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        complain("nothing was removed: without a terminal, use --yes")
        raise Refused("there was no terminal for a confirmation")
    Console(stderr=True).print(f"{question} [y/N] ", end="", markup=False, highlight=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was removed")
        raise Declined


def say(text: str) -> None:
    """Print one line on standard output without wrapping, so that SQL in it can be copied."""
    Console(highlight=False, markup=False, emoji=False).print(text, soft_wrap=True)


def complain(text: str) -> None:
    """Print a problem in one line on standard error without wrapping, or log it if the log is JSON."""
    if format_of(os.environ) == JSON:
        log_complaint(text)
    else:
        print_error(f"sources: {text}")


def note(text: str) -> None:
    """Print one line on standard error without wrapping."""
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(text, soft_wrap=True)
