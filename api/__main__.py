"""`python -m api`: the HTTP service, made from the environment."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import Final

import uvicorn

from api.app import create_app
from api.changes.feeds import ChangeFeeds
from api.composition import compose_service
from api.settings import ApiSettings
from commands.errors import CommandError
from eventlog.errors import EventLogError
from eventlog.logs import log_to_stderr
from eventlog.settings import take_no_words
from projections.errors import ProjectionError

GRACE_S: Final = 10
"""How long requests that are under way may take to end, once the process is told to stop."""


class Server(uvicorn.Server):
    """Lets go of those who follow changes before it waits for the requests that are under way."""

    def __init__(self, config: uvicorn.Config, feeds: ChangeFeeds) -> None:
        super().__init__(config)
        self._feeds = feeds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feeds.end("closing")
        await super().shutdown(sockets)


def main(words: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code. words: there are none but `--help`."""
    take_no_words("python -m api", __doc__, words)
    try:
        log_to_stderr(os.environ)
        settings = ApiSettings.from_environment(os.environ)
        service = compose_service(settings)
        app = create_app(service)
    except (EventLogError, CommandError, ProjectionError) as error:
        print(f"the API cannot start: {error}", file=sys.stderr)
        return 2
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
    )
    Server(config, service.feeds).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
