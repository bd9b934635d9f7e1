"""Sends commands: appends one, waits for its receipt, and looks up receipts later."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime

from commands.codec import Body, fingerprint_of, read_command
from commands.declaring.registry import CommandRegistry
from commands.errors import EarlierReceiptsUnread, TooLarge, Unanswered
from commands.receipt import KEY_REUSED, Receipt, ReceiptError, reuse_key
from commands.sending.receipt_follower import ReceiptFollower
from commands.sending.receipt_index import ReceiptIndex, RecentReceipts
from eventlog import topics
from eventlog.envelope import Envelope, encode, partition_of, timestamp_ms
from eventlog.ports import Entry, EventLog, Record

MAX_BODY_BYTES = 900_000
"""Kafka's records have at most 1 MiB; the envelope, and the event that repeats the body, need space as well."""
WOKEN_PER_TURN = 64
"""Of those that wait for receipts: each has an answer to write, and other requests wait meanwhile."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    command_id: str
    fingerprint: str
    answer: asyncio.Future[Receipt]

    def is_answered_by(self, receipt: Receipt) -> bool:
        """Whether `receipt` belongs to this command, not to another command with the same id."""
        return receipt.command_id == self.command_id and receipt.fingerprint == self.fingerprint

    def fail_unless_stored(self, stored: Future[int]) -> None:
        """Wake up with the error of a command that is not in the log; called in any thread.

        A command that is in the log needs no wake-up, because its receipt comes.
        """
        error = stored.exception()
        if error is not None and not (loop := self.answer.get_loop()).is_closed():
            loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class CommandGateway:
    """Submits commands for one asyncio loop; any number of processes may have one.

    A thread follows `receipts` from near their end: it wakes the waiting commands, and indexes the other receipts. Call
    `start` once and `close` at the end, both from the loop.
    """

    def __init__(
        self,
        log: EventLog,
        registry: CommandRegistry,
        *,
        timeout_s: float = 10.0,
        remembered: int = 1_000_000,
        open_index: Callable[[], ReceiptIndex] | None = None,
    ) -> None:
        """timeout_s: how long `submit` waits. open_index: opens an index of all receipts (see `receipt_index`).

        remembered: how many receipts are found without an index, at about 115 bytes each.
        """
        self.registry = registry
        self._log = log
        self._timeout_s = timeout_s
        self._waiting: dict[str, list[_Waiter]] = {}
        self._undelivered: deque[Record] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower = ReceiptFollower(
            log, open_index or (lambda: RecentReceipts(remembered)), self._waiting, self._wake, remembered
        )

    @property
    def ready(self) -> bool:
        """Whether receipts are followed up to the latest, so that answers come without delay."""
        return self._follower.ready

    def wait_ready(self, timeout_s: float) -> bool:
        """Block until `ready`, for a thread other than the loop's; returns whether it is ready in time."""
        return self._follower.wait_ready(timeout_s)

    async def start(self) -> None:
        """Begin to follow `receipts`; returns immediately (see `ready`)."""
        self._loop = asyncio.get_running_loop()
        self._follower.start()

    async def close(self) -> None:
        """Stop following; those that still wait get Unanswered after their timeout."""
        await asyncio.to_thread(self._follower.close)

    async def submit(
        self,
        command_type: str,
        body: Body,
        *,
        command_id: str | None = None,
        expected_version: int | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        traceparent: str | None = None,
    ) -> Receipt:
        """Append a command and return its receipt, as read back from the log.

        body: the command's fields, as JSON bytes or a mapping. command_id: chosen by the client (default: a new id);
        with the id of an earlier command, the same body returns its first receipt, and another body a receipt with the
        outcome `failed` and the code `idempotency_key_reused`. expected_version: None any, 0 must not exist. Raises
        UnknownCommand, MalformedCommand, TooLarge, LogUnavailable (it is not known whether the command is in the log:
        send it again with the same id), and Unanswered.
        """
        kind = self.registry.command(command_type)
        if isinstance(body, bytes) and len(body) > MAX_BODY_BYTES:
            raise TooLarge(len(body), MAX_BODY_BYTES)
        typed = read_command(kind, body)
        if len(typed.body) > MAX_BODY_BYTES:
            raise TooLarge(len(typed.body), MAX_BODY_BYTES)
        command_id = command_id or new_command_id()
        fingerprint = fingerprint_of(command_type, typed.body, expected_version)
        # if it is not found, the handler decides: it has every receipt that is still kept
        earlier = await self._find(command_id)
        if earlier is not None:
            if earlier.fingerprint == fingerprint:
                return earlier
            return key_reused(earlier, command_type, typed.stream, fingerprint)
        envelope = Envelope(
            id=command_id,
            type=command_type,
            stream=typed.stream,
            time=datetime.now(UTC),
            data={},
            source=f"/headwater/{typed.aggregate.name}",
            expected_version=expected_version,
            correlation_id=correlation_id,
            causation_id=causation_id,
            traceparent=traceparent,
        )
        return await self._send(envelope, typed.body, fingerprint)

    async def receipt(self, command_id: str) -> Receipt | None:
        """The receipt of an earlier command; None if there is none (yet, or any more).

        Without an index of all receipts, only the latest are found. Raises EarlierReceiptsUnread while the index is
        incomplete, and LogUnavailable.
        """
        known = self._follower.knows_enough
        found = await self._find(command_id)
        if found is None and not known:
            raise EarlierReceiptsUnread(command_id)
        return found

    async def _find(self, command_id: str) -> Receipt | None:
        place = self._follower.find(command_id)
        return None if place is None else await asyncio.to_thread(self._read, command_id, *place)

    async def _send(self, envelope: Envelope, body: bytes, fingerprint: str) -> Receipt:
        waiter = _Waiter(envelope.id, fingerprint, asyncio.get_running_loop().create_future())
        keys = (envelope.id, reuse_key(envelope.id, fingerprint))
        for key in keys:
            self._waiting.setdefault(key, []).append(waiter)
        partition = partition_of(envelope.stream, self._log.partitions)
        entry = Entry(topics.COMMANDS, envelope.stream, encode(envelope, body), timestamp_ms(envelope.time))
        try:
            async with asyncio.timeout(self._timeout_s):
                stored = self._log.submit(entry, partition)
                stored.add_done_callback(waiter.fail_unless_stored)
                return await waiter.answer
        except TimeoutError as error:
            raise Unanswered(envelope.id, self._timeout_s) from error
        finally:
            for key in keys:
                self._waiting[key].remove(waiter)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _resolve(self, records: Sequence[Record]) -> None:
        """Deliver these receipts, several per turn of the loop, which has other work as well."""
        if not self._undelivered and self._loop is not None:
            self._loop.call_soon(self._resolve_next)
        self._undelivered.extend(records)

    def _resolve_next(self) -> None:
        records = [self._undelivered.popleft() for _ in range(min(WOKEN_PER_TURN, len(self._undelivered)))]
        if self._undelivered and self._loop is not None:
            self._loop.call_soon(self._resolve_next)
        for record in records:
            waiters = self._waiting.get(record.key, ())
            receipt = _receipt(record) if waiters else None
            if receipt is None:
                continue
            for waiter in waiters:
                if waiter.is_answered_by(receipt) and not waiter.answer.done():
                    waiter.answer.set_result(receipt)

    def _wake(self, records: Sequence[Record]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve, records)

    def _read(self, command_id: str, partition: int, offset: int) -> Receipt | None:
        # read to the end: an unfinished reader is closed, and the next one must connect again
        records = list(self._log.read(topics.RECEIPTS, partition, offset, offset + 1))
        # two ids may share a place in the index: the record has the id
        return next((_receipt(record) for record in records if record.key == command_id), None)


def _receipt(record: Record) -> Receipt | None:
    """The receipt in a record; None if it is a tombstone or was not written by a handler."""
    if record.value is None:
        return None
    try:
        return Receipt.from_json(record.value)
    except ValueError as error:
        logger.warning('record "%s" at %d:%d is not a receipt: %s', record.key, record.partition, record.offset, error)
        return None


def key_reused(earlier: Receipt, command_type: str, stream: str, fingerprint: str) -> Receipt:
    """The refusal of a command that has the id of another command."""
    message = f'the command id "{earlier.command_id}" was used for another "{earlier.type}": use a new one'
    return Receipt(
        command_id=earlier.command_id,
        type=command_type,
        stream=stream,
        outcome="failed",
        version=earlier.version if earlier.stream == stream else 0,
        fingerprint=fingerprint,
        time=earlier.time,
        error=ReceiptError(KEY_REUSED, message),
    )


def new_command_id() -> str:
    """A new id in the form of a UUIDv7 (RFC 9562): ordered by time, and otherwise random."""
    random = int.from_bytes(os.urandom(10), "big")
    number = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64 | 0b10 << 62
    digits = f"{number | random & (1 << 62) - 1:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
