"""`/console/letters`: dead letters by their causes, and the commands that retry them. Values of records are hidden."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages
from headwater.api.guard import needs
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.letters import LOST, Letter, cause_of
from headwater.eventlog.topics import COMMANDS, EVENTS

PATH: Final = "/console/letters"
MAX_SHOWN: Final = 100
"""Letters of one cause on a page, and in one command."""
MAX_FIELDS: Final = 100
MAX_LEVELS: Final = 5
RETRY: Final = ("replay", "dead-letters", "retry")


@dataclass(frozen=True)
class ShownLetter:
    """A letter on a page. event: its record, if it is one. shape: its data with kinds and sizes in place of values."""

    key: str
    letter: Letter
    event: Envelope | None
    shape: Any
    command: str

    @property
    def is_in_a_stream(self) -> bool:
        """Whether its record is an event, which everybody who sees this page may read."""
        return self.event is not None and self.event.sequence > 0 and self.key.startswith(f"{EVENTS}/")


@dataclass(frozen=True)
class Cause:
    """The letters of one cause. number: of all of them. command: retries those that are shown; empty if no
    retry can help."""

    name: str
    number: int
    letters: Sequence[ShownLetter]
    command: str
    of_commands: bool


def letter_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the page."""

    async def show(request: Request) -> Response:
        check_no_query(request)
        causes = _causes(await service.overseer.letters())
        return pages.answer(request, "letters.html", section="letters", causes=causes)

    router.add_api_route(PATH, show, methods=["GET"], dependencies=needs.operating())


def _causes(letters: Mapping[str, Letter]) -> list[Cause]:
    """The most frequent one first."""
    by_cause = defaultdict[str, list[str]](list)
    for key in letters:
        by_cause[cause_of(key)].append(key)
    found = []
    for name, keys in by_cause.items():
        shown = keys[-1 : -MAX_SHOWN - 1 : -1]
        command = "" if all(LOST.fullmatch(key) for key in keys) else shlex.join((*RETRY, *shown))
        of_commands = any(key.startswith(f"{COMMANDS}/") for key in keys)
        found.append(Cause(name, len(keys), [_shown(key, letters[key]) for key in shown], command, of_commands))
    return sorted(found, key=lambda cause: -cause.number)


def _shown(key: str, letter: Letter) -> ShownLetter:
    try:
        event: Envelope | None = decode(letter.value)
    except NotAnEnvelope:
        event = None
    return ShownLetter(key, letter, event, _shape_of(letter, event), shlex.join((*RETRY, key)))


def _shape_of(letter: Letter, event: Envelope | None) -> Any:
    if event is not None:
        return shape(event.data)
    if letter.value is None:
        return None
    try:
        return shape(orjson.loads(letter.value))
    except orjson.JSONDecodeError:
        return f"{len(letter.value):,} bytes that are no JSON"


def shape(value: Any, level: int = 0) -> Any:
    """A value with kinds and sizes in place of texts and numbers, which are nobody's business here."""
    if isinstance(value, Mapping):
        if level >= MAX_LEVELS:
            return f"object with {len(value)} members"
        return {str(name): shape(each, level + 1) for name, each in list(value.items())[:MAX_FIELDS]}
    if isinstance(value, list):
        return [shape(value[0], level + 1), f"{len(value):,} items"] if value and level < MAX_LEVELS else []
    if value is None or isinstance(value, bool):
        return value
    return f"text of {len(value):,} characters" if isinstance(value, str) else "number"
