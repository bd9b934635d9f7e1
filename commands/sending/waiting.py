"""The commands that wait for their receipts, in one asyncio loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from commands.errors import Unanswered
from commands.receipt import Receipt
from commands.sending.outgoing import Outgoing
from eventlog.ports import Record

WOKEN_PER_TURN: Final = 16
"""Of those that wait for receipts: each has an answer to write, and other requests wait meanwhile."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Waiting:
    """A command that waits. answer: its receipt, or why there is none. deadline_s: of the loop's clock."""

    command: Outgoing
    answer: asyncio.Future[Receipt]
    deadline_s: float

    def is_answered_by(self, receipt: Receipt) -> bool:
        """Whether `receipt` belongs to this command, not to another command with the same id."""
        command = self.command
        return receipt.command_id == command.command_id and receipt.fingerprint == command.fingerprint

    def fail(self, error: Exception) -> None:
        """Wake up without a receipt; called in any thread."""
        if not (loop := self.answer.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class WaitingCommands:
    """Gives each command its receipt, or Unanswered after `timeout_s`.

    A command whose answer is cancelled stays until its receipt comes or its time is up.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._by_key: dict[str, list[Waiting]] = {}
        self._by_deadline: dict[Waiting, None] = {}
        self._undelivered: deque[Record] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

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
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, records)

    def _deliver(self, records: Sequence[Record]) -> None:
        if not self._undelivered and self._loop is not None:
            self._loop.call_soon(self._deliver_next)
        self._undelivered.extend(records)

    def _deliver_next(self) -> None:
        """Deliver some receipts per turn of the loop, which has other work as well."""
        records = [self._undelivered.popleft() for _ in range(min(WOKEN_PER_TURN, len(self._undelivered)))]
        if self._undelivered and self._loop is not None:
            self._loop.call_soon(self._deliver_next)
        for record in records:
            waiting = self._by_key.get(record.key, ())
            receipt = receipt_of(record) if waiting else None
            if receipt is None:
                continue
            for each in [each for each in waiting if each.is_answered_by(receipt)]:
                self._remove(each)
                if not each.answer.done():
                    each.answer.set_result(receipt)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        first = next(iter(self._by_deadline), None)
        for _ in range(WOKEN_PER_TURN):
            if first is None or first.deadline_s > loop.time():
                break
            self._remove(first)
            if not first.answer.done():
                first.answer.set_exception(Unanswered(first.command.command_id, self._timeout_s))
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
