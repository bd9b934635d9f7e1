"""The commands that wait for their receipts, in one asyncio loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final

from headwater.commands.errors import Unanswered
from headwater.commands.receipt import Receipt
from headwater.commands.sending.outgoing import Outgoing
from headwater.eventlog.ports import Record

WOKEN_PER_TURN: Final = 16
"""Of those that wait: each has an answer to write, and other requests wait meanwhile."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Waiting:
    """A command that waits. answer: its receipt, or why there is none. deadline_s: of the loop's clock."""

    command: Outgoing
    answer: asyncio.Future[Receipt]
    deadline_s: float


class WaitingCommands:
    """Gives each command its receipt, or Unanswered after `timeout_s`.

    A command whose answer is cancelled stays until its receipt comes or its time is up.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._by_key: dict[str, list[Waiting]] = {}
        self._by_deadline: dict[Waiting, None] = {}
        self._steps: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many commands wait."""
        return len(self._by_deadline)

    def __contains__(self, key: object) -> bool:
        """Whether a command waits for a receipt with this record key; safe to call from any thread."""
        return key in self._by_key

    def start(self) -> None:
        """Use the running loop."""
        self._loop = asyncio.get_running_loop()

    def add(self, command: Outgoing) -> Waiting:
        """Wait for the receipt of a command, which is to be appended after this."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(command, loop.create_future(), loop.time() + self._timeout_s)
        for key in command.receipt_keys:
            self._by_key.setdefault(key, []).append(waiting)
        self._by_deadline[waiting] = None
        if self._timer is None:
            self._timer = loop.call_at(waiting.deadline_s, self._expire, loop)
        return waiting

    def deliver(self, records: Sequence[Record]) -> None:
        """Give these receipts to the commands that wait for them; called in any thread."""
        self._take_later([partial(self._answer, record) for record in records])

    def fail(self, waiting: Sequence[Waiting], error: Exception) -> None:
        """Give commands this error; called in any thread."""
        self._take_later([partial(self._fail, each, error) for each in waiting])

    def _take_later(self, steps: Sequence[Callable[[], None]]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, self._loop, steps)

    def _take(self, loop: asyncio.AbstractEventLoop, steps: Sequence[Callable[[], None]]) -> None:
        if not self._steps:
            loop.call_soon(self._take_some, loop)
        self._steps.extend(steps)

    def _take_some(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take some steps per turn of the loop, which has other work as well."""
        some = [self._steps.popleft() for _ in range(min(WOKEN_PER_TURN, len(self._steps)))]
        if self._steps:
            loop.call_soon(self._take_some, loop)
        for step in some:
            step()

    def _answer(self, record: Record) -> None:
        waiting = self._by_key.get(record.key, ())
        receipt = receipt_of(record) if waiting else None
        if receipt is None:
            return
        for each in [each for each in waiting if each.command.is_answered_by(receipt)]:
            self._remove(each)
            if not each.answer.done():
                each.answer.set_result(receipt)

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        if waiting in self._by_deadline:
            self._remove(waiting)
        if not waiting.answer.done():
            waiting.answer.set_exception(error)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for waiting in [*takewhile(lambda each: each.deadline_s <= now, self._by_deadline)]:
            self._remove(waiting)
            error = Unanswered(waiting.command.command_id, waiting.command.stream, self._timeout_s)
            self._take(loop, [partial(self._fail, waiting, error)])
        first = next(iter(self._by_deadline), None)
        self._timer = None if first is None else loop.call_at(first.deadline_s, self._expire, loop)

    def _remove(self, waiting: Waiting) -> None:
        del self._by_deadline[waiting]
        for key in waiting.command.receipt_keys:
            others = self._by_key[key]
            others.remove(waiting)
            if not others:
                del self._by_key[key]


def receipt_of(record: Record) -> Receipt | None:
    """The receipt in a record; None if it is a tombstone or was not written by a handler."""
    if record.value is None:
        return None
    try:
        return Receipt.from_json(record.value)
    except ValueError as error:
        logger.warning('record "%s" at %d:%d is not a receipt: %s', record.key, record.partition, record.offset, error)
        return None
