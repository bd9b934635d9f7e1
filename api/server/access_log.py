"""One log line per request, except health probes, which come every two seconds."""

from __future__ import annotations

import logging
from typing import Final

from eventlog.logs import FORMAT

NAME: Final = "uvicorn.access"
HEALTH: Final = "/health/"


def write_access_log() -> None:
    """Write the server's access log in the form of the process's other lines; call it once the server is configured."""
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter(FORMAT))
    lines.addFilter(is_no_probe)
    access = logging.getLogger(NAME)
    access.handlers, access.propagate = [lines], False
    access.setLevel(logging.INFO)


def is_no_probe(record: logging.LogRecord) -> bool:
    """Whether a record of uvicorn's access log is not about a probe; args: client, method, path, …"""
    args = record.args
    return not (isinstance(args, tuple) and len(args) > 2 and str(args[2]).startswith(HEALTH))
