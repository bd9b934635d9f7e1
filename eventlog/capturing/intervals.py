"""Reads intervals whose parts have signs of their own, as rows have them, such as `P-1DT2H`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from pydantic import BeforeValidator

_NUMBER: Final = "(?:(-?[0-9]+){})?"
_DAYS: Final = "".join(map(_NUMBER.format, "YMD"))
_HOURS: Final = "".join(map(_NUMBER.format, "HM"))
_SIGNED: Final = re.compile(rf"P{_DAYS}(?:T{_HOURS}(?:(-?[0-9]+(?:\.[0-9]+)?)S)?)?")
YEAR_DAYS, MONTH_DAYS = 365, 30
"""As pydantic counts them in an interval without signs."""


def _added_up(value: Any) -> Any:
    """The sum of the parts if one of them is negative: pydantic knows no such intervals."""
    found = _SIGNED.fullmatch(value) if isinstance(value, str) and "-" in value else None
    if found is None:
        return value
    years, months, days, hours, minutes = (int(each or 0) for each in found.groups()[:5])
    try:
        return timedelta(
            days=years * YEAR_DAYS + months * MONTH_DAYS + days,
            hours=hours,
            minutes=minutes,
            seconds=float(found[6] or 0),
        )
    except OverflowError as error:
        raise ValueError(f'"{value}" is longer than a timedelta can be') from error


SIGNED_PARTS: Final = BeforeValidator(_added_up)
"""Metadata of a field with the type timedelta."""
