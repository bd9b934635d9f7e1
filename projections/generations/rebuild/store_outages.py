"""How long a rebuild waits for a store that is unavailable."""

from __future__ import annotations

import logging
from typing import Final

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from headwater.projections.errors import StoreUnavailable

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


def patiently(away_s: float) -> Retrying:
    """Calls again while a store is unavailable, for so many seconds."""
    return Retrying(
        retry=retry_if_exception_type(StoreUnavailable),
        stop=stop_after_delay(away_s),
        wait=wait_fixed(RETRY_S),
        before_sleep=before_sleep_log(log, logging.WARNING),
        reraise=True,
    )
