"""Durations in declarations: `90s`, `10m`, `1h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_TEXT: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")


def duration(text: str) -> timedelta:
    """The duration of a text such as `10m`; raises ValueError with the expected form."""
    duration_match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if duration_match is None:
        raise ValueError(f'"{text}" is not a duration: write it like "90s", "10m", "1h" or "7d"')
    return timedelta(**{_UNITS[duration_match[2]]: int(duration_match[1])})
