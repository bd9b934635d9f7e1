"""Bench `live_throughput`: events through the live path, into three PostgreSQL views each, with two loaders.

`python -m tests.bench.live live N` and `… load N` are the processes that the bench starts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import psycopg

from headwater import Event, rename, upcast
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.programs.metrics import serve_metrics
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.tracing.spans import traced
from headwater.projections.queries import run_live_query
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import LIVE_HELD_BY
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.names import table_name
from headwater.projections.table.computations import envelope, minus
from headwater.projections.table.folds import add, count, last, maximum
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import PriceChanged
from tests.bench._deployment import own_environment, process
from tests.bench._waiting import eventually
from tests.bench.commands import process_cpu_seconds
from tests.bench.replay import fill

NAMES = "live_throughput", "live_older"
OLDER_EVERY = 10
"""Of so many events of `live_older`, one is of an older version."""
LOADERS = 2
WARM_UP_EVENTS, EVENTS_MEASURED = 300_000, 600_000
LOOK_S = 0.5
"""Each look adds up the rows of three tables."""


class Repriced(Event, type=PriceChanged.type, version=2, history=[upcast(1, rename("amount", "price"))]):
    """The same event, if it had been changed."""

    listing_id: str
    city: str
    price: int
    previous_price: int


def views_of(event: type[Event]) -> tuple[TableView, ...]:
    """Three views of an event, of which two read its price."""
    return (
        TableView(
            name="bench_prices",
            key="listing_id",
            columns={"city": last({event: "city"}), "price": last({event: "price"}), "changes": count(event)},
            stores=(Postgres(),),
        ),
        TableView(
            name="bench_cities",
            key="city",
            columns={
                "changes": count(event),
                "gained": add({event: minus("price", "previous_price")}),
                "highest": maximum({event: "price"}),
            },
            stores=(Postgres(),),
        ),
        TableView(
            name="bench_streams",
            key="listing_id",
            columns={"latest": last({event: envelope("id")}), "events": count(event)},
            stores=(Postgres(),),
        ),
    )


VIEWS = views_of(PriceChanged)
OLDER = "older"
"""An argument of the processes: their views are of the event with a past."""


def run(name: str) -> Iterator[dict[str, Any]]:
    """A full log, then the live path: from the end of the warm-up to the last row."""
    older_every = OLDER_EVERY if name == "live_older" else 0
    measured, seconds, _ = path(WARM_UP_EVENTS, EVENTS_MEASURED, older_every=older_every)
    of_version_1 = f"one in {older_every} of an older version, " if older_every else ""
    yield {
        "value": round(measured / seconds),
        "unit": "events/s",
        "conditions": f"{measured} events after {WARM_UP_EVENTS} of warm-up, {of_version_1}"
        f"a patch for each of {len(VIEWS)} views in PostgreSQL, "
        f"{LOADERS} loaders, {os.cpu_count()} cores shared with the servers",
        "patches_per_s": round(len(VIEWS) * measured / seconds),
    }


def path(
    warm_up: int,
    events: int,
    *,
    traced_every: int = 0,
    older_every: int = 0,
    more: Callable[[], Mapping[str, str]] = dict,
) -> tuple[int, float, float]:
    """How many events were applied after the warm-up, in how many seconds, and the processor time of all parts.

    traced_every, older_every: see `fill`. more: gives the further variables of each process.
    """
    with own_environment() as (settings, stores), closing(KafkaLog(settings)) as log, ExitStack() as running:
        rows = running.enter_context(psycopg.connect(stores.postgres, autocommit=True))
        kind = (OLDER,) if older_every else ()
        service(settings, stores, len(VIEWS), *kind).build_missing()
        folder = running.enter_context(TemporaryDirectory(prefix="headwater-bench-"))
        fill(settings, log, warm_up + events, traced_every=traced_every, older_every=older_every)
        pids = [
            running.enter_context(part(each, len(VIEWS), settings.environment, folder, more(), *kind))
            for each in ("live", *["load"] * LOADERS)
        ]

        def applied() -> int:
            """How many events are in the rows of every view."""
            counted = "changes", "changes", "events"
            tables = (f'"{settings.environment}"."{table_name(view.name, 1)}"' for view in VIEWS)
            parts = (f"(SELECT sum({c}) FROM {t})" for c, t in zip(counted, tables, strict=True))
            (found,) = rows.execute(f"SELECT coalesce(least({', '.join(parts)}), 0)").fetchone() or (0,)
            return int(found)

        eventually(lambda: applied() >= warm_up, "the warm-up is applied", every_s=LOOK_S)
        began, first, cpu_s = time.monotonic(), applied(), sum(map(process_cpu_seconds, pids))
        eventually(lambda: applied() >= warm_up + events, "all is applied", every_s=LOOK_S)
        seconds = time.monotonic() - began
        return warm_up + events - first, seconds, sum(map(process_cpu_seconds, pids)) - cpu_s


def part(
    name: str, views: int, environment: str, folder: str, more: Mapping[str, str] = MappingProxyType({}), *kind: str
) -> AbstractContextManager[int]:
    """The live query or a loader, of the first so many of VIEWS, as a process with `more` variables."""
    variables = {**os.environ, "HEADWATER_ENVIRONMENT": environment, "HEADWATER_STATE": folder, **more}
    return process(["-m", "tests.bench.live", name, str(views), *kind], variables, Path(folder) / f"{name}.log")


def service(settings: LogSettings, stores: StoreSettings, views: int, kind: str = "") -> Service:
    """The read side of the first so many views; kind: OLDER, or empty."""
    declared = views_of(Repriced) if kind == OLDER else VIEWS
    return Service(settings, stores, ViewRegistry((__name__, view) for view in declared[:views]))


def main(name: str, views: int, kind: str = "") -> None:
    """The live query, or a loader, until it is told to stop."""
    log_to_stderr(os.environ, name)
    serve_metrics(os.environ, name)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if name == "live" else stop.set())
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    read_side = service(settings, stores, views, kind)
    if name == "live":
        held_by = os.environ.get(LIVE_HELD_BY)
        run_live_query(read_side, Path(held_by) if held_by else None)
    else:
        with traced(os.environ, settings.environment, name):
            read_side.run_loader("postgres", stop)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
