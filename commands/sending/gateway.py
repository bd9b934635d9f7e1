"""Sends commands: appends them, waits for their receipts, and looks up receipts later."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, Unpack

from headwater.commands.codec import Body
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import EarlierReceiptsUnread
from headwater.commands.receipt import KEY_REUSED, ORIGINS, Receipt, ReceiptError, receipt_key, reused_message
from headwater.commands.sending.outgoing import Options, Outgoing, prepare
from headwater.commands.sending.receipt_follower import ReceiptFollower
from headwater.commands.sending.receipt_index import Place, ReceiptIndex, RecentReceipts
from headwater.commands.sending.waiting import Waiting, WaitingCommands, receipt_of
from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import EventLog
from headwater.eventlog.rounds import SENT_BEFORE_S, until_round_s
from headwater.eventlog.tracing.spans import Span

MANY: Final = 8
"""So many commands wait for their receipts under load. New ones wait for the next round then, to be sent together: each
request costs Kafka, the handler and this process as much as the commands in it.
"""


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
        self._waiting = WaitingCommands(timeout_s)
        self._gathered: list[Waiting] = []
        """Those that wait for the next round to be appended."""
        self._turns: dict[str, asyncio.Future[None]] = {}  # by stream, while one of its commands looks for its receipt
        self._follower = ReceiptFollower(
            log, open_index or (lambda: RecentReceipts(remembered)), self._waiting, self._waiting.deliver, remembered
        )

    @property
    def ready(self) -> bool:
        """Whether receipts are followed up to the latest, so that answers come without delay."""
        return self._follower.ready

    @property
    def awaited(self) -> int:
        """How many commands wait for their receipts."""
        return len(self._waiting)

    def wait_ready(self, timeout_s: float) -> bool:
        """Block until `ready`, for a thread other than the loop's; returns whether it is ready in time."""
        return self._follower.wait_ready(timeout_s)

    async def start(self) -> None:
        """Begin to follow `receipts`; returns immediately (see `ready`)."""
        self._waiting.start()
        self._follower.start()

    async def close(self) -> None:
        """Append what is gathered, and stop following; those that still wait get Unanswered after their timeout."""
        self._append_gathered()
        await asyncio.to_thread(self._follower.close)

    async def submit(self, command_type: str, body: Body, **options: Unpack[Options]) -> Receipt:
        """Append a command and return its receipt, as read back from the log.

        body: the command's fields, as JSON bytes or a mapping. With the id of an earlier command of its stream, the
        same body returns its first receipt, and another body a receipt with the outcome `failed` and the code
        `idempotency_key_reused`. Raises UnknownCommand, MalformedCommand, TooLarge, LogUnavailable or Unanswered (see
        `send`).
        """
        command = prepare(self.registry.command(command_type), body, datetime.now(UTC), **options)
        (answer,) = self.send([command])
        return await answer

    def send(self, commands: Sequence[Outgoing], *, linger: bool = False) -> list[asyncio.Future[Receipt]]:
        """Append commands, each stream's in this order; the future of each has its receipt (see `submit`), or an error.

        linger: they may wait a few milliseconds for others, as those of a sender of many (see `EventLog.send`).
        Unanswered: no receipt came in time. LogUnavailable: the command may be in the log; send it again with its id.
        """
        # if no receipt is found, the handler decides: it has every receipt that is still kept
        keys = [each.key for each in commands if not each.is_new]
        places = dict(zip(keys, self._follower.find_each(keys), strict=True)) if keys else {}
        answers, new = list[asyncio.Future[Receipt]](), list[Waiting]()
        for command in commands:
            place = None if command.is_new else places.get(command.key)
            before = self._turns.get(command.stream)
            if place is None and before is None and command.complete is None:
                new.append(self._waiting.add(command))
                answers.append(new[-1].answer)
            else:
                turn = self._turns[command.stream] = asyncio.get_running_loop().create_future()
                answers.append(asyncio.create_task(self._send_in_turn(command, place, before, turn)))
                # also of one that fails, or is cancelled before it begins
                answers[-1].add_done_callback(partial(self._end_turn, command.stream, turn))
        if linger:
            self._append(new, linger=True)
        else:
            self._append_soon(new)
        for command, answer in zip(commands, answers, strict=True):
            if command.span is not None:
                answer.add_done_callback(partial(_end_span, command.span))
        return answers

    async def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        """The receipt of an earlier command of a stream; None if there is none (yet, or any more).

        origin: who chose the id; None: a client, else a process, else an outbox. Without an index of all receipts, only
        the latest are found. Raises EarlierReceiptsUnread while the index is incomplete, and LogUnavailable.
        """
        known = self._follower.knows_enough
        keys = [receipt_key(stream, each, command_id) for each in (ORIGINS if origin is None else [origin])]
        for key, place in zip(keys, self._follower.find_each(keys), strict=True):
            found = None if place is None else await asyncio.to_thread(self._read, key, place)
            if found is not None:
                return found
        if not known:
            raise EarlierReceiptsUnread(command_id)
        return None

    def _append_soon(self, waiting: Sequence[Waiting]) -> None:
        """Append them, but if many wait, with others, just before the next round."""
        is_first = not self._gathered
        if is_first and len(self._waiting) - len(waiting) < MANY:
            self._append(waiting)
            return
        if is_first:
            asyncio.get_running_loop().call_later(until_round_s(SENT_BEFORE_S), self._append_gathered)
        self._gathered.extend(waiting)  # also if few wait now: these must not overtake the others

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._append(gathered)

    def _append(self, waiting: Sequence[Waiting], *, linger: bool = False) -> None:
        by_partition = defaultdict[int, list[Waiting]](list)
        for each in waiting:
            by_partition[partition_of(each.command.stream, self._log.partitions)].append(each)
        for partition, some in by_partition.items():
            failed = partial(self._waiting.fail, some)
            self._log.send([each.command.entry for each in some], partition, failed, linger=linger)

    async def _send_in_turn(
        self, command: Outgoing, place: Place | None, before: asyncio.Future[None] | None, turn: asyncio.Future[None]
    ) -> Receipt:
        """The answer to a command whose id may have been used before, or that follows such a command of its stream.

        place: of a receipt with this id. before: is done once the command before it has been appended, or answered
        without; None: none is. turn: likewise for this command. If values are withheld, the handler is asked for the
        receipt first, because it has every receipt, also of commands that are not decided yet.
        """
        earlier = None if place is None else await asyncio.to_thread(self._read, command.key, place)
        if before is not None:
            await asyncio.wait([before])
        answer = self._send_again(command, earlier)
        if command.complete is not None and (await answer).is_undecided:
            answer = self._send_again(await asyncio.to_thread(command.complete), None)
        self._end_turn(command.stream, turn)
        return await answer

    def _end_turn(self, stream: str, turn: asyncio.Future[None], _answered: object = None) -> None:
        if not turn.done():
            turn.set_result(None)
        if self._turns.get(stream) is turn:
            del self._turns[stream]

    def _send_again(self, command: Outgoing, earlier: Receipt | None) -> asyncio.Future[Receipt]:
        """The answer to a command whose id has this receipt, or none that is known."""
        if earlier is None or earlier.is_undecided:
            again = self._waiting.add(command)
            self._append_soon([again])
            return again.answer
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(earlier if command.is_answered_by(earlier) else key_reused(earlier, command))
        return answer

    def _read(self, key: str, place: Place) -> Receipt | None:
        partition, offset = place
        # read to the end: an unfinished reader is closed, and the next one must connect again
        records = list(self._log.read(topics.RECEIPTS, partition, offset, offset + 1))
        # two keys may share a place in the index
        return next((receipt_of(record) for record in records if record.key == key), None)


def _end_span(span: Span, answer: asyncio.Future[Receipt]) -> None:
    if answer.cancelled():
        span.end(error="cancelled")
    elif (error := answer.exception()) is not None:
        span.end(error=type(error).__name__)
    else:
        span.end({"headwater.outcome": answer.result().outcome})


def key_reused(earlier: Receipt, command: Outgoing) -> Receipt:
    """The refusal of a command that has the id of another command."""
    return Receipt(
        command_id=earlier.command_id,
        type=command.type,
        stream=command.stream,
        outcome="failed",
        version=earlier.version,
        fingerprint=command.fingerprint,
        time=earlier.time,
        error=ReceiptError(KEY_REUSED, reused_message(earlier.command_id, command.stream)),
    )
