"""`/console/letters`: dead letters by their causes, and their retry. Values of records stay hidden."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response

from headwater.api.console.acting import start
from headwater.api.console.actions import Actions, shown_command
from headwater.api.console.pages import Pages
from headwater.api.console.requests import read_own_form
from headwater.api.errors import BadParameter
from headwater.api.guard import needs
from headwater.api.requests.parameters import check_no_query
from headwater.api.service import Service
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.letters import LOST, Letter, cause_of
from headwater.eventlog.topics import COMMANDS, EVENTS

PATH: Final = "/console/letters"
MAX_SHOWN: Final = 100
"""Letters of one cause on a page, and in one retry."""
MAX_FIELDS: Final = 100
MAX_LEVELS: Final = 5
RETRY: Final = ("replay", "dead-letters", "retry", "--")


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
    """The letters of one cause. number: of all of them. can_retry: whether a retry can help."""

    name: str
    number: int
    letters: Sequence[ShownLetter]
    can_retry: bool
    of_commands: bool


def letter_routes(router: APIRouter, pages: Pages, service: Service, actions: Actions) -> None:
    """Add the page, and the retry of one letter or of those of a cause."""

    async def show(request: Request) -> Response:
        check_no_query(request)
        causes = _causes(await service.overseer.letters())
        return pages.answer(request, "letters.html", section="letters", causes=causes, missing=actions.missing)

    async def retry(request: Request) -> Response:
        form = await read_own_form(request, pages)
        letters = await service.overseer.letters()
        if cause := form.get("cause"):
            keys = [key for key in letters if cause_of(key) == cause][:MAX_SHOWN]
        else:
            keys = [form["key"]] if form.get("key") in letters else []
        if not keys:
            raise BadParameter("key", "is no dead letter any more: load the page again")
        return start(request, actions, (*RETRY, *keys))

    router.add_api_route(PATH, show, methods=["GET"], dependencies=needs.operating())
    router.add_api_route(PATH, retry, methods=["POST"], dependencies=needs.operating())


def _causes(letters: Mapping[str, Letter]) -> list[Cause]:
    """The most frequent one first."""
    by_cause = defaultdict[str, list[str]](list)
    for key in letters:
        by_cause[cause_of(key)].append(key)
    found = [
        Cause(
            name,
            len(keys),
            [_shown(key, letters[key]) for key in keys[-1 : -MAX_SHOWN - 1 : -1]],
            not all(LOST.fullmatch(key) for key in keys),
            any(key.startswith(f"{COMMANDS}/") for key in keys),
        )
        for name, keys in by_cause.items()
    ]
    return sorted(found, key=lambda cause: -cause.number)


def _shown(key: str, letter: Letter) -> ShownLetter:
    try:
        event: Envelope | None = decode(letter.value)
    except NotAnEnvelope:
        event = None
    return ShownLetter(key, letter, event, _shape_of(letter, event), shown_command((*RETRY[:-1], key)))


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
