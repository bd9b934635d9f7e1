"""One log line per request, except health probes, which come every two seconds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.programs.logs import formatter_of

NAME: Final = "uvicorn.access"
HEALTH: Final = "/health/"


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
    """Add what a line of JSON says of a request to a record of uvicorn's access log; args: see `is_no_probe`."""
    args = record.args
    if isinstance(args, tuple) and len(args) == 5:
        _, record.method, path, _, record.status = args
        record.path = str(path).partition("?")[0]
    return True
