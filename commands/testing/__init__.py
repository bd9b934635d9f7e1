"""Given, when, then for those who write domains, on the code that decides in production. May import all of `commands`.

    from commands.testing import given

    given(account, Opened(account_id="A", owner="Ada")).when(Deposit(account_id="A", cents=5)).then(...)

`check_aggregates` and `check_event_versions` need the extra `testing` (pytest and hypothesis); the other words need
neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventlog.modules import first_with

if TYPE_CHECKING:
    from commands.testing.past import at, recorded
    from commands.testing.subjects import given

__all__ = ["at", "given", "recorded"]

_PLACES = ("commands.testing.past", "commands.testing.subjects")


def __getattr__(name: str) -> object:
    """Import a word when it is asked for: some need pytest, and most do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return first_with(name, _PLACES)
