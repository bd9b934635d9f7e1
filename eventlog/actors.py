"""Who caused a command, an event or an observation: the CloudEvents extension `actor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import UNPRINTABLE, Variables

ACTOR: Final = "HEADWATER_ACTOR"
PROCESS_ACTOR: Final = "process:"
OUTBOX_ACTOR: Final = "outbox:"
RESERVED: Final = (PROCESS_ACTOR, OUTBOX_ACTOR)
"""Beginnings of the actors that are parts of Headwater, and no callers."""
MAX_ACTOR_CHARACTERS: Final = 255
NEEDS: Final = f"a text of 1 to {MAX_ACTOR_CHARACTERS} characters that does not begin with {' or '.join(RESERVED)}"


def is_actor(text: object) -> bool:
    """Whether a caller may have this name."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_ACTOR_CHARACTERS
        and UNPRINTABLE.search(text) is None
        and not text.startswith(RESERVED)
    )


class ActorVariables(Variables):
    """The variable with the actor of a program that sends commands directly to the log."""

    actor: str = ""


def actor_of(env: Mapping[str, str]) -> str | None:
    """The actor that HEADWATER_ACTOR names; None: nobody is known. Raises SettingError."""
    actor = ActorVariables.read(env).actor
    if actor and not is_actor(actor):
        raise SettingError(ACTOR, actor, NEEDS)
    return actor or None
