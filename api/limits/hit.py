"""Counts what limits refuse."""

from __future__ import annotations

from typing import Final

from headwater.eventlog.programs.metrics import counter

LIMITS_HIT: Final = counter("limits_hit", "Requests and lines that a limit of the API has refused.", ["limit"])
STALLED: Final = "stalled_client"
"""Of a client that was disconnected because it has read nothing of its answer for too long."""
HEAD_TOO_LARGE: Final = "request_header_fields_too_large"
