"""Looks at what is measured again and again, beside everything else: a replay, which may take hours, holds up none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.metrics import counter
from headwater.projections.errors import ProjectionError

SAMPLE_S: Final = 5.0
"""Seconds between two looks."""

FAILED: Final = counter(
    "looks_failed", "Looks at what this process measures that failed: it shows what the last one found.", ["what"]
)

log = logging.getLogger(__name__)


def look_until(stop: threading.Event, looks: Mapping[str, Callable[[], None]]) -> None:
    """Look until `stop` is set. looks: by what they measure; an error is logged and counted, and stops no other."""
    failed = {what: FAILED.labels(what) for what in looks}
    while True:
        for what, look in looks.items():
            try:
                look()
            except (EventLogError, ProjectionError) as error:
                log.warning("cannot measure %s: %s", what, error)
                failed[what].inc()
            except Exception:
                log.exception("cannot measure %s", what)
                failed[what].inc()
        if stop.wait(SAMPLE_S):
            return
