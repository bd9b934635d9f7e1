"""`headwater projections [prepare | build | live | streams | load STORE]`: the read side, or one part of it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.commands.errors import CommandError
from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.personal.installed import install, opened_from
from headwater.eventlog.personal.ports import KEYS_VARIABLE
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.programs.metrics import serve_metrics
from headwater.eventlog.programs.stopping import Stopping
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing.spans import traced
from headwater.projections.errors import ProjectionError
from headwater.projections.queries import run_live_query, run_stream_queries
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import LIVE_HELD_BY
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.setup.jars import JarError
from headwater.projections.spark.setup.java import JavaError
from headwater.projections.spark.stream_queries.checkpoint import check_shared
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.erasing import has_clear_columns
from headwater.projections.supervise import supervise
from headwater.projections.supervision.process import SupervisionError

app = typer.Typer(
    help="Headwater's read side. Without a command, it runs and supervises all parts.", add_completion=False
)
log = logging.getLogger(__name__)


def main() -> int:
    """Run the command line; known errors are printed in one line, with exit code 1."""
    try:
        # as a program is called in metrics and logs: `projections`, `live`, `load-postgres`, …
        named = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
        log_to_stderr(os.environ, "-".join(named[:2]) if named else "projections")
        app(prog_name=called_as())
    except (EventLogError, CommandError, ProjectionError, SupervisionError, JarError, JavaError) as error:
        log.critical("%s", error)
        return 1
    return 0


@app.callback(invoke_without_command=True)
def everything(context: typer.Context) -> None:
    """Build missing views, then run and supervise the live query, the queries of stream views and the loaders."""
    if context.invoked_subcommand is None:
        supervise(_service(), Stopping.by_signals())


@app.command()
def prepare() -> None:
    """Run once per installation: download the jars that Spark needs, and make the archive that speeds up its start."""
    from headwater.projections.spark.prepare import make_archive  # noqa: PLC0415 - no other part of this process needs Spark

    make_archive()


@app.command()
def build() -> None:
    """Build the views that have no live generation, then exit; with code 1 if one could not be built."""
    service = _service()
    service.generations.prepare()
    servable = service.servable()
    if servable.build_missing() or len(servable.views.views) < len(service.views.views):
        raise typer.Exit(1)


@app.command()
def live() -> None:
    """Run the live query, which turns events into patches."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve_metrics(os.environ, "live")
    held_by = os.environ.get(LIVE_HELD_BY)
    run_live_query(_service(), Path(held_by) if held_by else None)


@app.command()
def streams() -> None:
    """Run the queries of the stream views."""
    serve_metrics(os.environ, "streams")
    service = _service()
    with traced(os.environ, service.settings.environment):
        run_stream_queries(service, Stopping.by_signals())


@app.command()
def load(store: Annotated[str, typer.Argument(help=", ".join(STORES))]) -> None:
    """Run a loader, which writes patches to the rows of one store."""
    if store not in STORES:
        raise typer.BadParameter(f'unknown store "{store}": use one of {", ".join(STORES)}')
    # batches make many short-lived objects and no cycles; scanning them repeatedly costs a loader a sixth
    gc.set_threshold(100_000, 20, 100)
    serve_metrics(os.environ, f"load-{store}")
    service = _service()
    with traced(os.environ, service.settings.environment):
        service.run_loader(store, Stopping.by_signals())


def _service() -> Service:
    settings = LogSettings.from_environment(os.environ)
    settings.make_state()
    stores, views = StoreSettings.from_environment(os.environ), ViewRegistry.load(settings.modules)
    # a missing setting is found now; it connects at its first use. Kept generations may have plaintext columns, too
    if has_clear_columns(views.views.values()) or os.environ.get(KEYS_VARIABLE):
        install(opened_from(os.environ, settings.environment, LoggedKeys(os.environ)))
    if views.keep_state:
        check_shared(settings, os.environ)
    return Service(settings, stores, views)


if __name__ == "__main__":
    sys.exit(main())
