"""The whole read side in one place: builds missing views, then supervises the queries and the loaders of each store."""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from headwater.eventlog.programs.backoff import RETRY_FOREVER
from headwater.eventlog.programs.metrics import MetricsVariables, collecting, serve_metrics
from headwater.eventlog.programs.modules import SAFE_PATH
from headwater.eventlog.programs.stopping import Stopping
from headwater.projections.generations.upkeep.upkeep import Upkeep
from headwater.projections.metrics import PartMetrics
from headwater.projections.running_parts import (
    EVERYTHING,
    LIVE,
    LIVE_HELD_BY,
    LIVE_START_S,
    REPLAYING,
    STREAMS,
    RunningParts,
    ready_file,
)
from headwater.projections.service import Service
from headwater.projections.stores.declared import STORES
from headwater.projections.stream.view import StreamView
from headwater.projections.supervision.process import ProcessSpec
from headwater.projections.supervision.supervised import Supervisor

log = logging.getLogger(__name__)

HEALTH_LOOK_S: Final = 0.1


def supervise(service: Service, stop: Stopping) -> None:
    """Create topics and tables, build missing views, and supervise the parts until `stop` is set.

    Views with a query of their own, which may take hours, are built while the others are kept up to date.
    """
    everything, replaying = ready_file(service.settings, EVERYTHING), ready_file(service.settings, REPLAYING)
    everything.unlink(missing_ok=True)
    port = serve_metrics(os.environ, "projections")
    service.prepare()
    service.generations.prepare()
    with service.measured() if port else nullcontext():  # from now on: the first build may take long
        _build_and_keep(service.servable(), port, stop, everything, replaying)


def _build_and_keep(service: Service, port: int | None, stop: Stopping, everything: Path, replaying: Path) -> None:
    """Build missing views, and supervise the parts until `stop` is set.

    port: of the metrics of this process; None: it has none. everything, replaying: see ready_file.
    """
    try:
        with stop.interrupting():
            unbuilt = service.build_missing(only_folded=True)
    except KeyboardInterrupt:
        log.info("stopped while views were built: the next start builds them")
        return
    queries = {LIVE: [_query_part(service, LIVE, env={LIVE_HELD_BY: str(replaying)}, held=replaying.exists)]}
    if service.views.of_kind(StreamView):
        queries[STREAMS] = [_query_part(service, STREAMS)]
    loaders = _loader_parts(service)
    specs = [*chain(*queries.values()), *chain(*loaders.values())]
    if port is not None:
        variable = MetricsVariables.variable("metrics_port")
        specs = [replace(spec, env={**spec.env, variable: str(port + at)}) for at, spec in enumerate(specs, 1)]
    supervisor = Supervisor(specs, RETRY_FOREVER)
    parts = RunningParts(
        {part: [spec.name for spec in specs] for part, specs in (queries | loaders).items()}, supervisor
    )
    tried = threading.Event()

    def keep(upkeep: Upkeep) -> None:
        # Spark's session starts beside the replay; the query need not make patches of replayed events
        supervisor.begin(*(query.name for query in chain(*queries.values())))
        upkeep.try_to_look(only_folded=True)
        while upkeep.replays_backlog and not stop.wait(HEALTH_LOOK_S):
            pass
        replaying.unlink(missing_ok=True)
        if stop.is_set():
            return
        supervisor.begin(*(loader.name for loader in chain(*loaders.values())))
        upkeep.try_to_replay_others()
        tried.set()
        threading.Thread(target=service.keep_added, args=[stop], name="indexes", daemon=True).start()  # may take long
        upkeep.run(stop)

    replaying.touch()
    with collecting(PartMetrics(supervisor)), service.upkeep(parts, unbuilt) as upkeep:
        threading.Thread(target=keep, args=[upkeep], name="upkeep", daemon=True).start()
        threading.Thread(target=service.keep_erased, args=[stop], name="erased persons", daemon=True).start()
        threading.Thread(target=service.keep_removed, args=[stop], name="expired rows", daemon=True).start()
        try:
            while not (tried.is_set() and not upkeep.is_replaying and supervisor.is_healthy):
                if stop.wait(HEALTH_LOOK_S):
                    break
            if not stop.is_set():
                everything.touch()
                log.info("projections are up: %s", ", ".join(status.name for status in supervisor.status()))
            stop.wait()
        finally:
            everything.unlink(missing_ok=True)
            supervisor.stop()


def _loader_parts(service: Service) -> dict[str, list[ProcessSpec]]:
    """The loaders of each store that a view is in."""
    return {
        store: [
            _part(service, f"load-{store}" + (f"-{number}" if number else ""), ("load", store))
            for number in range(service.stores.loaders)
        ]
        for store in STORES
        if service.views.in_store(store)
    }


def _query_part(service: Service, name: str, **changes: Any) -> ProcessSpec:
    """A part that runs queries: healthy once Spark, which needs some seconds, has started. changes: see ProcessSpec."""
    ready = ready_file(service.settings, name)
    return replace(
        _part(service, name, (name,)),
        prepare=lambda: ready.unlink(missing_ok=True),
        probe=lambda: None if ready.exists() else "Spark is starting",
        start_timeout_s=LIVE_START_S,
        **changes,
    )


def _part(service: Service, name: str, words: tuple[str, ...]) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        argv=(sys.executable, *SAFE_PATH, "-m", "headwater.projections", *words),
        log=service.settings.state.absolute() / "logs" / f"projections-{name}.log",
        probe=lambda: None,
    )
