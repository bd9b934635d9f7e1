"""Tests of views: given events, then rows. May import `stores`, `table`, `commands` and `eventlog`.

from projections.testing import rows_of

assert rows_of(owners, Opened(account_id="A", owner="Ada")) == {"Ada": {"owner": "Ada", "accounts": 1}}

`contracts_of_views` makes a class of tests for whole modules; it needs the extra `testing` (pytest and hypothesis).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.testing.rewriting import with_shown_values
from eventlog.modules import first_with

if TYPE_CHECKING:
    from projections.testing.contracts import contracts_of_views
    from projections.testing.orders import check_any_order
    from projections.testing.rows import rows_of

__all__ = ["check_any_order", "contracts_of_views", "rows_of"]

_PLACES = ("projections.testing.rows", "projections.testing.orders")


def __getattr__(name: str) -> object:
    """Import each name on first use, because only `contracts_of_views` needs pytest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "contracts_of_views":
        return first_with(name, _PLACES)
    loaded: object = getattr(with_shown_values("projections.testing.contracts"), name)
    return loaded
