"""Tests of your declarations without a server: aggregates and processes (given, when, then), views (events, then rows).

    from headwater.testing import given, rows_of

`contracts_of` and `contracts_of_views` make a class of tests for whole modules. Only they need the extra `testing`
(pytest and hypothesis).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from commands.testing import at, contracts_of, given, recorded
    from projections.testing import check_any_order, contracts_of_views, rows_of

__all__ = ["at", "check_any_order", "contracts_of", "contracts_of_views", "given", "recorded", "rows_of"]

_COMMANDS: Final = frozenset({"at", "contracts_of", "given", "recorded"})


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Import each name at its first use, because only two of them need pytest."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("commands.testing" if name in _COMMANDS else "projections.testing"), name)


def __dir__() -> list[str]:
    """All names, also those that nobody has used yet."""
    return sorted({*globals(), *__all__})
