"""The rows of a view that a caller may read, as conditions that are added to every read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headwater.api.requests.filters import MAX_VALUES, Filter
from headwater.eventlog.integers import fits_64_bits
from headwater.projections.stores.names import NUL, REPLACEMENT
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

_MAX_DIGITS: Final = 20
"""Of an integer of 64 bits, with its sign."""


def readable(view: View, claims: Mapping[str, Any]) -> tuple[Filter, ...]:
    """What rows must fulfil so that a caller with these claims may read them: nothing, if everybody may.

    A list of values is fulfilled by any of them. A claim that is missing, or has no value that the column can have, is
    fulfilled by no row.
    """
    return tuple(
        Filter(column, "in", claim_values(view.types[column], claims.get(claim.name)))
        for column, claim in view.readable_by.items()
    )


def no_row(view: View) -> tuple[Filter, ...]:
    """What no row fulfils."""
    return (Filter(view.key_name, "in", ()),)


def claim_values(kind: ColumnType, claim: Any) -> tuple[Any, ...]:
    """The texts or integers that a claim stands for: those in it, if it is a list; none, if it is missing."""
    given = claim if isinstance(claim, list) else [claim]
    if len(given) > MAX_VALUES:
        return ()
    read: Callable[[Any], Any] = _integer if kind is ColumnType.INTEGER else _text
    found = {value for each in given if (value := read(each)) is not None}
    return tuple(sorted(found))


def _text(value: Any) -> str | None:
    """A text that a row can have; PostgreSQL has another character instead of NUL, which could be somebody else's."""
    if not isinstance(value, str) or NUL in value or REPLACEMENT in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    return value


def _integer(value: Any) -> int | None:
    """An integer; API keys have claims of text only, so also its decimal digits, as Python writes them."""
    if isinstance(value, str) and value.isascii() and len(value) <= _MAX_DIGITS and value.lstrip("-").isdigit():
        number = int(value)
        value = number if str(number) == value else None
    return value if type(value) is int and fits_64_bits(value) else None
