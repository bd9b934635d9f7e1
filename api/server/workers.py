"""Several API processes that serve one address."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Final

from headwater.api.settings import CANNOT_START, GRACE_S, ApiSettings, is_loopback
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.programs.workers import Workers

END_S: Final = GRACE_S + 5.0
"""How long workers may take to end before they are killed."""


def workers(settings: ApiSettings, listening: socket.socket) -> Workers:
    """`settings.server.workers` processes that serve one listening socket, each with its own service."""
    return Workers(
        "api worker", settings.server.workers, work, (settings, listening), end_s=END_S, hopeless=CANNOT_START
    )


def listen(settings: ApiSettings) -> socket.socket:
    """A socket at the settings' address, for all workers; raises SettingError if it is not available."""
    host, port = settings.server.host, settings.server.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            needs = f"a free port on {host} ({error.strerror})"
            raise SettingError("HEADWATER_API_PORT", str(port), needs) from error
        raise SettingError("HEADWATER_API_HOST", host, f"an address of this machine ({error})") from error
    try:
        # a name such as localhost may mean another address here
        settings.guard.check_host(host, is_loopback=is_loopback(listening.getsockname()[0]))
    except SettingError:
        listening.close()
        raise
    return listening


def work(settings: ApiSettings, listening: socket.socket) -> None:
    """Serve in its own process until a stop signal, or until the process that started this one is gone."""
    from headwater.api.server.serving import serve  # noqa: PLC0415 - the process that watches over workers needs none of it

    log_to_stderr(os.environ, "api")
    sys.exit(serve(settings, listening))
