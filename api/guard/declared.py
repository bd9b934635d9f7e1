"""The names of a deployment that scopes may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.api.guard.scopes import Declared
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.registry import CommandRegistry

STREAMS: Final = "streams"
"""The view of all events: it needs `streams:*`, so it is no name of a view in a scope."""


def declared_names(commands: CommandRegistry, observations: ObservationRegistry, views: Iterable[str]) -> Declared:
    """The names of what is declared; views: by name."""
    return Declared(
        {
            "commands": frozenset(commands.commands),
            "observations": frozenset(observations.types),
            "views": frozenset(views) - {STREAMS},
            "streams": frozenset(commands.aggregates),
        }
    )
