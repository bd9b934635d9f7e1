"""Which code of the user a thread is running, so that code that does not return can be named."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import get_ident
from typing import Final, NamedTuple

from headwater.eventlog.programs.logs import trace_id_of

SHOWN_CHARACTERS: Final = 200
"""Of each name, which a user chooses."""


class RunningCode(NamedTuple):
    """A call of a user's code.

    function: such as `decide`. name: what it is about, such as the type of the command. subject: the stream, instance
    or record. id: of the command or event, as far as it is known. since_s: of the monotonic clock.
    traceparent: of the command or event, if it has one.
    """

    function: str
    name: str
    subject: str
    id: str
    since_s: float
    traceparent: str | None = None

    @property
    def facts(self) -> Mapping[str, object]:
        """What lines say that are logged meanwhile (see `eventlog.programs.logs.FACTS`)."""
        known, subject = {"trace_id": trace_id_of(self.traceparent)}, self.subject[:SHOWN_CHARACTERS]
        match self.function:
            case "decide":
                return {**known, "stream": subject, "command_id": self.id, "command_type": self.name}
            case "write the state":
                return {**known, "stream": subject, "command_id": self.id}
            case "react":
                return {**known, "instance": subject}
            case _:
                return {}

    @property
    def seconds(self) -> float:
        """For how long it has been running."""
        return time.monotonic() - self.since_s

    def __str__(self) -> str:
        about = f'"{self.name[:SHOWN_CHARACTERS]}" of "{self.subject[:SHOWN_CHARACTERS]}"'
        return f'"{self.function}" for {about} (id "{self.id[:SHOWN_CHARACTERS]}")'


_running: dict[int, tuple[str, str, str, str, float, str | None]] = {}
"""By thread, the members of its RunningCode, which is made if somebody asks: each command is noted, few are shown."""


class running:  # noqa: N801 - it is used like a function; one of contextlib takes twice as long
    """While it is open, as in `with running(…)`, this thread runs the user's code (see RunningCode)."""

    __slots__ = ("_code",)

    def __init__(self, function: str, name: str, subject: str, id: str, traceparent: str | None = None) -> None:
        self._code = function, name, subject, id, time.monotonic(), traceparent

    def __enter__(self) -> None:
        _running[get_ident()] = self._code

    def __exit__(self, *_: object) -> None:
        _running.pop(get_ident(), None)


def running_in(thread: int | None) -> RunningCode | None:
    """The code of the user that a thread is running; thread: its `ident`."""
    code = None if thread is None else _running.get(thread)
    return None if code is None else RunningCode(*code)


def running_facts() -> Mapping[str, object]:
    """What lines of the log say that this thread writes now, if it runs the user's code."""
    code = running_in(get_ident())
    return {} if code is None else code.facts
