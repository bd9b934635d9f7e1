"""What Headwater's processes log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from eventlog.errors import SettingError
from eventlog.hidden_values import without_values

LOG_LEVEL: Final = "HEADWATER_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
CHATTY: Final = ("elastic_transport", "httpx", "py4j")
"""Libraries with a log line per request or thread."""


class WithoutValues(logging.Formatter):
    """Formats a log line, with its traceback, without the values that pydantic's errors quote."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter.format."""
        return without_values(super().format(record))


def log_to_stderr(env: Mapping[str, str], default: str = "INFO") -> None:
    """Log from level `HEADWATER_LOG_LEVEL` on; raises SettingError if it is not one of LEVELS."""
    level = env.get(LOG_LEVEL) or default
    handler = logging.StreamHandler()
    handler.setFormatter(WithoutValues(FORMAT))
    logging.basicConfig(level=level if level in LEVELS else default, handlers=[handler])
    for library in CHATTY:
        logging.getLogger(library).setLevel(logging.WARNING)
    if level not in LEVELS:
        raise SettingError(LOG_LEVEL, level, f"one of {', '.join(LEVELS)}")
