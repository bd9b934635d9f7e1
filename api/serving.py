"""One process that answers requests, alone or as one of several workers."""

from __future__ import annotations

import gc
import socket
import sys
import time
from functools import partial
from typing import Final

import uvicorn

from api.access_log import write_access_log
from api.app import create_app
from api.changes.feeds import ChangeFeeds
from api.composition import compose_service
from api.connections import StalledClients
from api.settings import CANNOT_START, GRACE_S, ApiSettings
from commands.errors import CommandError
from eventlog.errors import EventLogError
from eventlog.workers import call_without_parent
from projections.errors import ProjectionError

TICKS: Final = 10
"""uvicorn ticks ten times per second."""


class Server(uvicorn.Server):
    """Disconnects clients that read nothing, and followers before it waits for the running requests."""

    def __init__(self, config: uvicorn.Config, feeds: ChangeFeeds, stall_s: float) -> None:
        super().__init__(config)
        self._feeds, self._stalled = feeds, StalledClients(stall_s)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self._stalled.disconnect(self.server_state.connections, time.monotonic())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feeds.end("closing")
        await super().shutdown(sockets)


def serve(settings: ApiSettings, listening: socket.socket | None = None) -> int:
    """Answer requests until a stop signal; returns the exit code.

    listening: a socket of the process that started this one; if that process ends, serving ends.
    """
    try:
        service = compose_service(settings)
        app = create_app(service)
    except (EventLogError, CommandError, ProjectionError) as error:
        print(f"the API cannot start: {error}", file=sys.stderr)
        return CANNOT_START
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=settings.access_log,
        log_config=None,  # its lines, with tracebacks, are formatted as all others
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
    )
    if settings.access_log:
        write_access_log()
    server = Server(config, service.feeds, settings.limits.stall_s)
    if listening is not None:
        call_without_parent(partial(setattr, server, "should_exit", True))
    # objects made so far stay: scanning them repeatedly would delay requests by 0.1 s
    gc.collect()
    gc.freeze()
    server.run(None if listening is None else [listening])
    return 0
