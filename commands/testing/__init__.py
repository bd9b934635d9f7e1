"""Tests of aggregates and processes: given, when, then, run by the production code. May import all of `commands`.

    from commands.testing import given

    given(account, Opened(account_id="A", owner="Ada")).when(Deposit(account_id="A", cents=5)).then(...)

`contracts_of` makes a class of tests for whole modules. Only it needs the extra `testing` (pytest and hypothesis).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.testing.rewriting import with_shown_values
from eventlog.modules import first_with

if TYPE_CHECKING:
    from commands.testing.contracts import contracts_of
    from commands.testing.past import at, recorded
    from commands.testing.subjects import given

__all__ = ["at", "contracts_of", "given", "recorded"]

_PLACES = ("commands.testing.past", "commands.testing.subjects")


def __getattr__(name: str) -> object:
    """Import each name on first use, because only `contracts_of` needs pytest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "contracts_of":
        return first_with(name, _PLACES)
    loaded: object = getattr(with_shown_values("commands.testing.contracts"), name)
    return loaded
