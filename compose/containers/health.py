"""`python -m headwater.compose.containers.health live|ready|projections`: health checks of containers without curl.

live: the API of this container answers. ready: it can serve requests. projections: the read side has started, with all
of its parts. The exit code is 0 if so, else 1, with the reason. It reads the settings of the program.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPSConnection
from typing import Final

from headwater.api.settings import ServerSettings
from headwater.api.tls import CERTIFICATE
from headwater.compose.probes import http_problem
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, ready_file

TIMEOUT_S: Final = 4.0
"""Less than the five seconds that the health checks of the images and the compose file allow."""
ANY: Final = {"0.0.0.0", "::", "[::]", ""}  # noqa: S104 - to find what listens, not to listen
"""Addresses to listen on that mean all of this machine's."""


def problem(what: str, environ: Mapping[str, str]) -> str | None:
    """Why the program of this container is not live, ready or up; None if it is. what: one of CHECKS."""
    if what == "projections":
        up = ready_file(LogSettings.from_environment(environ), EVERYTHING).exists()
        return None if up else "the read side is starting"
    given = ServerSettings.read(environ)
    host = "127.0.0.1" if given.host in ANY else given.host.strip("[]")
    if not environ.get(CERTIFICATE):
        return http_problem(HTTPConnection(host, given.port, timeout=TIMEOUT_S), f"/health/{what}")
    # its certificate is for the name by which others know it, so it is not checked
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection(host, given.port, timeout=TIMEOUT_S, context=context)
    return http_problem(connection, f"/health/{what}")


CHECKS: Final = ("live", "ready", "projections")


def main(words: Sequence[str]) -> int:
    """Check what the one word says; returns the exit code."""
    if len(words) != 1 or words[0] not in CHECKS:
        print(f"error: say what to check: one of {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    try:
        problem_found = problem(words[0], os.environ)
    except EventLogError as error:
        problem_found = str(error)
    if problem_found is not None:
        print(problem_found)
    return 0 if problem_found is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
