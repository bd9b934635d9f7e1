"""Why a server is unavailable: in the log, which operators read, and not in answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN_S: Final = 10.0
"""How long the same cause is not logged again: during an outage, every request has it."""
MAX_CAUSES: Final = 100

logger = logging.getLogger(__name__)


class Outages:
    """Logs the causes of outages, each once in a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._clock = clock
        self._logged: dict[str, float] = {}

    def note(self, error: Exception) -> None:
        """Log the message of an error, unless the same one was logged a moment ago."""
        cause, now = str(error), self._clock()
        if now - self._logged.get(cause, -AGAIN_S) < AGAIN_S:
            return
        if len(self._logged) >= MAX_CAUSES:
            self._logged.clear()
        self._logged[cause] = now
        logger.warning("%s", cause)
