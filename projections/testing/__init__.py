"""Given events, then rows: for those who declare views. May import `projections.table`, `commands` and `eventlog`.

from projections.testing import rows_of

assert rows_of(owners, Opened(account_id="A", owner="Ada")) == {"Ada": {"owner": "Ada", "accounts": 1}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventlog.modules import first_with

if TYPE_CHECKING:
    from projections.testing.orders import check_any_order
    from projections.testing.rows import rows_of

__all__ = ["check_any_order", "rows_of"]

_PLACES = ("projections.testing.rows", "projections.testing.orders")


def __getattr__(name: str) -> object:
    """Import a word when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return first_with(name, _PLACES)
