"""One process that answers requests, alone or as one of several workers."""

from __future__ import annotations

import gc
import logging
import os
import socket
import ssl
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from headwater.api.app import create_app
from headwater.api.changes.feeds import ChangeFeeds
from headwater.api.limits import Limits
from headwater.api.middleware import ServiceMetrics
from headwater.api.server.connections import BoundedProtocol, StalledClients
from headwater.api.server.workers import listen
from headwater.api.service import compose_service
from headwater.api.settings import CANNOT_START, GRACE_S, ApiSettings, is_loopback
from headwater.api.tls import CERTIFICATE, CHECK_S, Certificate, TlsFiles
from headwater.commands.errors import CommandError
from headwater.eventlog.errors import EventLogError, SettingError
from headwater.eventlog.kafka.admin import check_resealed
from headwater.eventlog.programs.logs import complain, formatter_of
from headwater.eventlog.programs.metrics import collecting, serve_metrics
from headwater.eventlog.programs.workers import call_without_parent, number_of_worker
from headwater.eventlog.tracing.spans import traced
from headwater.projections.errors import ProjectionError

NAME: Final = "uvicorn.access"
HEALTH: Final = "/health/"
TICKS: Final = 10
"""uvicorn ticks ten times per second."""
KEEP_ALIVE_S: Final = 60
"""Longer than `Limits.idle_s`, so that this limit counts. uvicorn's own is 5 s, the same as that of clients such as
httpx: a request that they send just then would meet a closed connection."""

logger = logging.getLogger(__name__)


def write_access_log(env: Mapping[str, str]) -> None:
    """Write the server's access log in the form of the process's other lines; call it once the server is configured."""
    lines = logging.StreamHandler()
    lines.setFormatter(formatter_of(env, "api"))
    lines.addFilter(is_no_probe)
    lines.addFilter(with_facts)
    access = logging.getLogger(NAME)
    access.handlers, access.propagate = [lines], False
    access.setLevel(logging.INFO)


def is_no_probe(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's access log is not about a probe; args: client, method, path, …"""
    args = record.args
    return not (isinstance(args, tuple) and len(args) > 2 and str(args[2]).startswith(HEALTH))


def with_facts(record: logging.LogRecord) -> bool:
    """Add what a line of JSON says of a request to a record of uvicorn's access log; args: see `is_no_probe`.

    The line has no query: filters may have personal values.
    """
    args = record.args
    if isinstance(args, tuple) and len(args) == 5:
        client, method, target, version, status = args
        path = str(target).partition("?")[0]
        record.method, record.path, record.status = method, path, status
        record.args = client, method, path, version, status
    return True


def config_of(app: FastAPI, **options: Any) -> uvicorn.Config:
    """How uvicorn serves the application; options: more of its settings."""
    return uvicorn.Config(
        app, http=BoundedProtocol, ws="none", log_level="warning", timeout_keep_alive=KEEP_ALIVE_S, **options
    )


class Server(uvicorn.Server):
    """Disconnects clients that read or send nothing, and followers before it waits for the running requests."""

    def __init__(self, config: uvicorn.Config, feeds: ChangeFeeds, limits: Limits, tls: TlsFiles | None = None) -> None:
        super().__init__(config)
        self._tls, self._certificate = tls, None if tls is None else loaded(config, tls)
        self._feeds, self._idle_s, self._stalled = feeds, limits.idle_s, StalledClients(limits.stall_s)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now_s, connections = time.monotonic(), list(self.server_state.connections)
            self._stalled.disconnect(connections, now_s)
            for connection in connections:
                if isinstance(connection, BoundedProtocol):
                    connection.disconnect_if_idle(now_s, self._idle_s)
        if self._certificate is not None and counter % (TICKS * CHECK_S) == 0:
            self._certificate.refresh()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feeds.end("closing")
        await super().shutdown(sockets)


def loaded(config: uvicorn.Config, tls: TlsFiles) -> Certificate:
    """Load the configuration with this certificate; raises SettingError."""
    config.load()
    config.ssl = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    tls.load(context)
    return Certificate(tls, context)


def serve(settings: ApiSettings, listening: socket.socket | None = None) -> int:
    """Answer requests until a stop signal; returns the exit code.

    listening: a socket of the process that started this one; if that process ends, serving ends.
    """
    try:
        service = compose_service(settings)
        check_resealed(settings.log)  # what it accepted would be lost
        app = create_app(service)
        serve_metrics(os.environ, "api", number_of_worker())
    except (EventLogError, CommandError, ProjectionError) as error:
        complain(f"the API cannot start: {error}")
        return CANNOT_START
    if settings.hosts.is_any and not settings.server.allowed_hosts:
        logger.warning(
            "the API listens on %s and answers to any host: set HEADWATER_API_ALLOWED_HOSTS to the names of the API",
            settings.server.host,
        )
    if settings.guard.knows_callers and settings.tls is None and not is_loopback(settings.server.host.lower()):
        logger.warning(
            "keys and tokens arrive at %s without encryption: set %s, unless a proxy on the way encrypts",
            settings.server.host,
            CERTIFICATE,
        )
    config = config_of(
        app,
        host=settings.server.host,
        port=settings.server.port,
        access_log=settings.server.access_log,
        log_config=None,  # its lines, with tracebacks, are formatted as all others
        timeout_graceful_shutdown=GRACE_S,
    )
    if settings.server.access_log:
        write_access_log(os.environ)
    try:
        server = Server(config, service.feeds, settings.limits, settings.tls)
    except SettingError as error:
        complain(f"the API cannot start: {error}")
        return CANNOT_START
    if listening is not None:
        call_without_parent(partial(setattr, server, "should_exit", True))
    # objects made so far stay: scanning them repeatedly would delay requests by 0.1 s
    gc.collect()
    gc.freeze()
    # a request makes few cycles: at Python's own limits, scanning cost a twelfth of the time of commands in bulk
    gc.set_threshold(20_000, 20, 50)
    # threads that read large bodies give way to the event loop sooner: at 5 ms, other requests took 3 times as long
    sys.setswitchinterval(0.001)
    try:
        with collecting(ServiceMetrics(service)), traced(os.environ, settings.log.environment):
            server.run([listening or listen(settings)])
    except SettingError as error:
        complain(f"the API cannot start: {error}")
        return CANNOT_START
    return 0
