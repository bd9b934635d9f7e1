"""Sends commands: appends them, waits for their receipts, and looks up receipts later."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import EarlierReceiptsUnread, Unanswered
from headwater.commands.receipt import KEY_REUSED, ORIGINS, Receipt, ReceiptError, receipt_key, reused_message
from headwater.commands.sending.prepared_command import PreparedCommand
from headwater.commands.sending.receipt_follower import Place, ReceiptFollower, ReceiptIndex, RecentReceipts
from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.ports import EventLog, Record
from headwater.eventlog.rounds import SENT_BEFORE_S, until_round_s
from headwater.eventlog.tracing.spans import Span

MANY: Final = 8
"""So many commands wait for their receipts under load. New ones wait for the next round then, to be sent together: each
request costs Kafka, the handler and this process as much as the commands in it.
"""
ENOUGH: Final = 100
"""So many commands are sent without waiting for the round: more of them would make each hardly cheaper."""
WOKEN_PER_TURN: Final = 16
"""Of the requests that wait: each has an answer to write, and other requests wait meanwhile."""

logger = logging.getLogger(__name__)


class CommandGateway:
    """Submits commands for one asyncio loop; any number of processes may have one.

    A thread follows `receipts` from near their end: it wakes the waiting commands, and indexes the other receipts. Call
    `start` once and `close` at the end, both from the loop.

    All commands are appended through one queue, in the order of the calls: so no command overtakes another of its
    stream.
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
        """timeout_s: how long a command waits for its receipt. open_index: opens an index of all receipts.

        remembered: how many receipts are found without an index, at about 115 bytes each.
        """
        self.registry = registry
        self._log = log
        self._waiting = WaitingCommands(timeout_s)
        self._queue: list[Waiting] = []
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
        """Append the queue, and stop following; those that still wait get Unanswered after their timeout."""
        self._append_queue()
        await asyncio.to_thread(self._follower.close)

    def send(self, commands: Sequence[PreparedCommand]) -> list[asyncio.Future[Receipt]]:
        """Append commands, each stream's in this order; the future of each has its receipt, or an error.

        The receipt is read back from the log. With the id of an earlier command of its stream, the same body gets its
        first receipt, and another body one with the outcome `failed` and the code `idempotency_key_reused`.
        Unanswered: no receipt came in time. LogUnavailable: the command may be in the log; send it again with its id.
        """
        # if no receipt is found, the handler decides: it has every receipt that is still kept
        keys = [command.key for command in commands if not command.is_new]
        places = dict(zip(keys, self._follower.find_each(keys), strict=True)) if keys else {}
        answers, new = list[asyncio.Future[Receipt]](), list[Waiting]()
        for command in commands:
            place = None if command.is_new else places.get(command.key)
            before = self._turns.get(command.stream)
            if place is None and before is None and command.complete is None:
                waiting = self._waiting.add(command)
                new.append(waiting)
                answers.append(waiting.answer)
            else:
                turn = self._turns[command.stream] = asyncio.get_running_loop().create_future()
                answers.append(asyncio.create_task(self._send_in_turn(command, place, before, turn)))
                # also of one that fails, or is cancelled before it begins
                answers[-1].add_done_callback(partial(self._end_turn, command.stream, turn))
        self._append(new)
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
        keys = [receipt_key(stream, sender, command_id) for sender in (ORIGINS if origin is None else [origin])]
        for key, place in zip(keys, self._follower.find_each(keys), strict=True):
            receipt = None if place is None else await asyncio.to_thread(self._read, key, place)
            if receipt is not None:
                return receipt
        if not known:
            raise EarlierReceiptsUnread(command_id)
        return None

    def _append(self, waiting: Sequence[Waiting]) -> None:
        """Append commands after all others: at once if few wait for receipts, else together before the next round."""
        few_wait = len(self._waiting) - len(waiting) < MANY
        is_first = not self._queue
        self._queue.extend(waiting)
        if (is_first and few_wait) or len(self._queue) >= ENOUGH:
            self._append_queue()
        elif is_first and self._queue:
            asyncio.get_running_loop().call_later(until_round_s(SENT_BEFORE_S), self._append_queue)

    def _append_queue(self) -> None:
        queue, self._queue = self._queue, []
        by_partition = defaultdict[int, list[Waiting]](list)
        for waiting in queue:
            by_partition[partition_of(waiting.command.stream, self._log.partitions)].append(waiting)
        for partition, some in by_partition.items():
            self._log.send(
                [submission.command.entry for submission in some], partition, partial(self._waiting.fail, some)
            )

    async def _send_in_turn(
        self,
        command: PreparedCommand,
        place: Place | None,
        before: asyncio.Future[None] | None,
        turn: asyncio.Future[None],
    ) -> Receipt:
        """The answer to a command whose id may have been used before, or that follows such a command of its stream.

        place: of a receipt with this id. before: is done once the command before it is in the queue, or answered
        without; None: none is. turn: likewise for this command. If values are withheld, the handler is asked for the
        receipt first, because it has every receipt, also of commands that are not decided yet.
        """
        earlier = None if place is None else await asyncio.to_thread(self._read, command.key, place)
        if before is not None:
            await asyncio.wait([before])
        if earlier is not None and not earlier.is_undecided:
            return earlier if command.is_answered_by(earlier) else key_reused(earlier, command)
        waiting = self._waiting.add(command)
        self._append([waiting])
        if command.complete is not None and (await waiting.answer).is_undecided:
            waiting = self._waiting.add(await asyncio.to_thread(command.complete))
            self._append([waiting])
        self._end_turn(command.stream, turn)
        return await waiting.answer

    def _end_turn(self, stream: str, turn: asyncio.Future[None], _answered: object = None) -> None:
        if not turn.done():
            turn.set_result(None)
        if self._turns.get(stream) is turn:
            del self._turns[stream]

    def _read(self, key: str, place: Place) -> Receipt | None:
        partition, offset = place
        # read to the end: an unfinished reader is closed, and the next one must connect again
        records = list(self._log.read(topics.RECEIPTS, partition, offset, offset + 1))
        # two keys may share a place in the index
        return next((receipt_of(record) for record in records if record.key == key), None)


@dataclass(slots=True, eq=False)
class Waiting:
    """A command that waits. answer: its receipt, or why there is none. deadline_s: of the loop's clock."""

    command: PreparedCommand
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

    def add(self, command: PreparedCommand) -> Waiting:
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
        self._take_later([partial(self._fail, submission, error) for submission in waiting])

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
        for submission in [pending for pending in waiting if pending.command.is_answered_by(receipt)]:
            self._remove(submission)
            if not submission.answer.done():
                submission.answer.set_result(receipt)

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        if waiting in self._by_deadline:
            self._remove(waiting)
        if not waiting.answer.done():
            waiting.answer.set_exception(error)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for waiting in [*takewhile(lambda submission: submission.deadline_s <= now, self._by_deadline)]:
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


def _end_span(span: Span, answer: asyncio.Future[Receipt]) -> None:
    if answer.cancelled():
        span.end(error="cancelled")
    elif (error := answer.exception()) is not None:
        span.end(error=type(error).__name__)
    else:
        span.end({"headwater.outcome": answer.result().outcome})


def key_reused(earlier: Receipt, command: PreparedCommand) -> Receipt:
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
