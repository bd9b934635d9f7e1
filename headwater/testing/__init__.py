"""Tests of your declarations without a server: aggregates and processes (given, when, then), views (events, then rows).

    from headwater.testing import given, rows_of

`contracts_of` and `contracts_of_views` make a class of tests for whole modules. Only they need the extra `testing`
(pytest and hypothesis). `headwater.testing.plugin` has a running deployment as a fixture, a RunningDeployment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from headwater.commands.testing.rewriting import with_shown_values

if TYPE_CHECKING:
    from headwater.commands.testing.contracts import contracts_of
    from headwater.commands.testing.past import at, heartbeat, recorded
    from headwater.commands.testing.subjects import given
    from headwater.compose.testing.deployment import RunningDeployment
    from headwater.projections.testing.contracts import contracts_of_views
    from headwater.projections.testing.rows import check_any_order, late_rows_of, query_digests, rows_of

__all__ = [
    "RunningDeployment",
    "at",
    "check_any_order",
    "contracts_of",
    "contracts_of_views",
    "given",
    "heartbeat",
    "late_rows_of",
    "query_digests",
    "recorded",
    "rows_of",
]

_MODULES: Final = {
    "RunningDeployment": "headwater.compose.testing.deployment",
    "at": "headwater.commands.testing.past",
    "check_any_order": "headwater.projections.testing.rows",
    "contracts_of": "headwater.commands.testing.contracts",
    "contracts_of_views": "headwater.projections.testing.contracts",
    "given": "headwater.commands.testing.subjects",
    "heartbeat": "headwater.commands.testing.past",
    "late_rows_of": "headwater.projections.testing.rows",
    "query_digests": "headwater.projections.testing.rows",
    "recorded": "headwater.commands.testing.past",
    "rows_of": "headwater.projections.testing.rows",
}


if not TYPE_CHECKING:  # a type checker would take every name for one of these

    def __getattr__(name: str) -> object:
        """Import each name at its first use, because only two of them need pytest."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _MODULES[name]
        # pytest shows the values of an assertion that fails only in modules that it has rewritten
        loaded = with_shown_values(module) if module.endswith(".contracts") else import_module(module)
        return getattr(loaded, name)


def __dir__() -> list[str]:
    """All names, also those that nobody has used yet."""
    return sorted({*globals(), *__all__})
