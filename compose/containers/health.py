"""`python -m headwater.compose.containers.health live|ready|projections`: health checks of containers without curl.

live: the API of this container answers. ready: it can serve requests. projections: the read side has started, with all
of its parts. The exit code is 0 if so, else 1, with the reason. It reads the settings of the program.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.api.settings import ServerSettings
from headwater.api.tls import CERTIFICATE
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
    host = "127.0.0.1" if given.host in ANY else given.host
    return _answer(host.strip("[]"), given.port, f"/health/{what}", is_encrypted=bool(environ.get(CERTIFICATE)))


CHECKS: Final = ("live", "ready", "projections")


def _answer(host: str, port: int, path: str, *, is_encrypted: bool) -> str | None:
    """None if the API answers 200. Its certificate is for the name by which others know it, so it is not checked."""
    connection = (
        http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=_unchecked())
        if is_encrypted
        else http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    )
    try:
        connection.request("GET", path, headers={"host": "localhost"})  # every API answers to this name
        answer = connection.getresponse()
        text = answer.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {host}:{port}: {error}"
    finally:
        connection.close()
    return None if answer.status == http.client.OK else f"{path} answers {answer.status}: {text}"


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def main(words: Sequence[str]) -> int:
    """Check what the one word says; returns the exit code."""
    if len(words) != 1 or words[0] not in CHECKS:
        print(f"error: say what to check: one of {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    try:
        found = problem(words[0], os.environ)
    except EventLogError as error:
        found = str(error)
    if found is not None:
        print(found)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
