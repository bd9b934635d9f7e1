"""How much work of one kind there is at once, how much of it at a time, and what takes turns."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

from headwater.api.errors import Overloaded
from headwater.eventlog.programs.metrics import counter

MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
"""Of the events or rows of one answer: a page ends with the one that reaches it."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")
_CALLER: Final = ContextVar[str | None]("caller", default=None)
OTHERS: Final = 4
"""One part in so many of each limit is for other callers than the one that has the most."""
READS_AT_ONCE: Final = 8
MAX_BODIES_BYTES: Final = 64 * 1024 * 1024
"""Of all requests with one body that are read or answered at once."""
LIMITS_HIT: Final = counter("limits_hit", "Requests and lines that a limit of the API has refused.", ["limit"])
STALLED: Final = "stalled_client"
"""Of a client that was disconnected because it has read nothing of its answer for too long."""
HEAD_TOO_LARGE: Final = "request_header_fields_too_large"


@dataclass(frozen=True)
class Limits:
    """The limits of requests.

    body_bytes, body_values: of a body, or of a line of NDJSON. body_s: how long a JSON body may take to arrive, and the
    next bytes of NDJSON.
    in_flight: lines of one request that are in progress at once.
    in_flight_in_all: commands of all such requests that wait for their receipts; more would only wait in the log.
    in_flight_bytes: of their records; a larger one waits until it is alone.
    stall_s: how long a client may read nothing of an answer.
    idle_s: how long it may take to send the head of a request, after it connected or had the answer to the one before.
    heartbeat_s: time between comments to a follower.
    followers: clients that follow changes at once.
    """

    body_bytes: int = 512 * 1024
    body_values: int = 20_000
    body_s: float = 60.0
    answer_timeout_s: float = 10.0
    wait_ms: int = 5_000
    max_wait_ms: int = 30_000
    in_flight: int = 1_000
    in_flight_in_all: int = 4_000
    in_flight_bytes: int = 64 * 1024 * 1024
    stall_s: float = 60.0
    idle_s: float = 10.0
    heartbeat_s: float = 15.0
    followers: int = 1_000


def next_portion(count: int, size_bytes: int, budget_bytes: int, maximum: int) -> int:
    """How many to read after `count` that had `size_bytes`: twice as many, if they will need half of the budget."""
    return max(1, min(2 * count, maximum, count * budget_bytes // (2 * size_bytes + 1)))


def fitting_rows(sizes_bytes: Iterable[int], budget_bytes: int) -> int:
    """How many of the first rows, with these sizes, there are up to the one that reaches the budget."""
    total_bytes = list(accumulate(sizes_bytes))
    return min(bisect_left(total_bytes, budget_bytes) + 1, len(total_bytes))


def stored_bytes(values: Iterable[Any]) -> int:
    """About how much memory the values of a row take; only texts and lists may be large."""
    size_bytes = 0
    for value in values:
        if isinstance(value, str):
            size_bytes += sys.getsizeof(value)
        elif isinstance(value, list):
            size_bytes += stored_bytes(value)
        else:
            size_bytes += 8
    return size_bytes


@contextmanager
def working_for(name: str | None) -> Iterator[None]:
    """A context whose work counts to the share of this caller: empty for requests without one; None: the API is
    open."""
    token = _CALLER.set(name)
    try:
        yield
    finally:
        _CALLER.reset(token)


@dataclass(slots=True)
class _Share:
    """What one caller has of an Admission."""

    places: asyncio.Semaphore
    inside: int = 0
    size_bytes: int = 0


class Admission:
    """Work of one kind in one process; what comes first is admitted first.

    One caller gets three quarters of it at most, so that the others always get some. If callers are not known, they
    share all of it.
    """

    def __init__(self, what: str, at_once: int, waiting: int, size_bytes: int = sys.maxsize) -> None:
        """what: names the work, in the plural. waiting: pieces that may wait for those that run. size_bytes: that they
        may hold together."""
        self.what, self.at_once, self._limit, self.all_bytes = what, at_once, at_once + waiting, size_bytes
        self._places = asyncio.Semaphore(at_once)
        self._inside = self.held_bytes = 0
        self._shares: dict[str | None, _Share] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """Run the body once it is its turn; raises Overloaded if too much else waits, of all or of the same caller."""
        name = _CALLER.get()
        share = self._shares.get(name) or _Share(asyncio.Semaphore(share_of(self.at_once, name)))
        _check(self.what, self._inside, self._limit, share.inside, name)
        self._inside += 1
        share.inside += 1
        self._shares[name] = share
        place = Place(self, share, name)
        try:
            async with share.places, self._places:
                yield place
        finally:
            self._inside -= 1
            share.inside -= 1
            place.take(-place.size_bytes)
            if not share.inside:
                del self._shares[name]


class Place:
    """That of a piece of work, which may hold bytes."""

    def __init__(self, admission: Admission, share: _Share, caller: str | None) -> None:
        self._admission, self._share, self._caller, self.size_bytes = admission, share, caller, 0

    def take(self, size_bytes: int) -> None:
        """Hold these bytes too, until the place is left; raises Overloaded if there is no room for them."""
        whole, part = self._admission, self._share
        after = whole.held_bytes + size_bytes
        _check(f"bytes of {whole.what}", after - 1, whole.all_bytes, part.size_bytes + size_bytes - 1, self._caller)
        whole.held_bytes = after
        part.size_bytes += size_bytes
        self.size_bytes += size_bytes


def _check(what: str, used: int, limit: int, used_by_caller: int, name: str | None) -> None:
    if used >= limit:
        raise Overloaded(what, limit)
    if used_by_caller >= (part := share_of(limit, name)):
        raise Overloaded(f"{what} of this caller", part)


def share_of(limit: int, name: str | None) -> int:
    """How much of a limit one caller gets; all of it if callers are not known."""
    return limit if name is None else max(1, limit - max(1, limit // OTHERS))


class Shared(Generic[Answer]):
    """An answer that all who need it share, for a while: however many ask, there is one look at a time.

    If it fails, all who waited for it get its error, and those who come a moment later.
    """

    def __init__(
        self,
        look: Callable[[], Coroutine[Any, Any, Answer]],
        for_s: float,
        *,
        failed_for_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """for_s: how old an answer may be, from the begin of its look, once it is there.

        failed_for_s: how long an error is answered. clock: returns the time in seconds.
        """
        self._look, self._for_s, self._failed_for_s, self._clock = look, for_s, failed_for_s, clock
        self._began_s = self._ended_s = float("-inf")
        self._looking: asyncio.Task[Answer] | None = None

    async def current(self, *, fresh: bool = False) -> Answer:
        """The answer; fresh: of a look that began after the call. Raises what the look raises."""
        called_s = self._clock()
        oldest_s = called_s if fresh else called_s - self._for_s
        while (looking := self._looking) is None or not self._is_usable(looking, oldest_s, fresh):
            if looking is None or looking.done():
                # it is nobody's: neither the caller nor the trace of the first request that needs it
                self._began_s = self._clock()
                looking = self._looking = asyncio.create_task(self._timed(), context=Context())
                break
            await asyncio.wait((looking,))
        return await asyncio.shield(looking)  # one client that leaves does not end it for the others

    def _is_usable(self, looking: asyncio.Task[Answer], oldest_s: float, fresh: bool) -> bool:
        if looking.done() and looking.cancelled():
            return False
        if looking.done() and looking.exception() is not None:
            return self._clock() - self._ended_s < self._failed_for_s
        return self._began_s >= oldest_s or not (fresh or looking.done())

    async def _timed(self) -> Answer:
        try:
            return await self._look()
        finally:
            self._ended_s = self._clock()


@dataclass(frozen=True)
class Work:
    """The kinds of work of one process that take long or much memory.

    scans: pages of the whole log. folds: states of streams. reads: queries of views, by store. bodies: requests with
    one body, until they are answered. many_lines: requests with many lines, each with one line in memory.
    """

    scans: Admission = field(default_factory=partial(Admission, "pages of all streams", 2, 30))
    folds: Admission = field(default_factory=partial(Admission, "states of streams", 2, 30))
    reads: Mapping[str, Admission] = field(
        default_factory=lambda: defaultdict(partial(Admission, "reads of views", READS_AT_ONCE, 500))
    )
    bodies: Admission = field(default_factory=partial(Admission, "requests with a body", 2_000, 0, MAX_BODIES_BYTES))
    many_lines: Admission = field(default_factory=partial(Admission, "requests with many lines", 200, 0))


class Capacity:
    """Places and bytes that are taken, several at once, and given back; whoever comes first gets them first.

    An item with more bytes than there are in all takes them all.
    """

    def __init__(self, places: int, size_bytes: int = sys.maxsize) -> None:
        self._places, self._free_bytes, self._all_bytes = places, size_bytes, size_bytes
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def portions(
        self, items: Sequence[Item], size_bytes: Callable[[Item], int] = lambda _: 0
    ) -> AsyncIterator[Sequence[Item]]:
        """`items` in their order, as many at once as there is room for, which they take.

        size_bytes: of an item.
        """
        while items:
            taken = await self._take([size_bytes(item) for item in items])
            yield items[:taken]
            items = items[taken:]

    def give_back(self, places: int, size_bytes: int = 0) -> None:
        """Let others take these places, and the bytes of one item."""
        self._places += places
        self._free_bytes += min(size_bytes, self._all_bytes)
        self._freed.set()

    async def _take(self, sizes: Sequence[int]) -> int:
        """Wait until there is room for the first of these, and take that of as many as fit; returns how many."""
        async with self._turn:
            while not (fitting := self._fitting(sizes)):
                self._freed.clear()
                await self._freed.wait()
            self._places -= len(fitting)
            self._free_bytes -= sum(fitting)
            return len(fitting)

    def _fitting(self, sizes: Sequence[int]) -> Sequence[int]:
        """The sizes of those of the first items that fit."""
        ready, left = list[int](), self._free_bytes
        for size in (min(size, self._all_bytes) for size in sizes[: self._places]):
            if size > left:
                break
            ready.append(size)
            left -= size
        return ready


class Turns:
    """Lets one waiter continue per turn of the event loop, in the order in which they came.

    So, however many waiters there are, all other work of the loop waits for at most one part of theirs.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def next(self) -> None:
        """Return in a later turn of the running loop, alone among the waiters."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # of an earlier loop, whose waiters are gone
            self._loop, self._waiting, self._scheduled = loop, deque(), False
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._wake_one, loop)
        await mine

    def _wake_one(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled meanwhile
                first.set_result(None)
                break
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            loop.call_soon(self._wake_one, loop)


class Threads:
    """Threads with this name; they are started when they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, read: Callable[[*Arguments], Answer], *args: *Arguments) -> Answer:
        """The result of `read`, called in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _called, read, *args)

    async def run_while_wanted(
        self, read: Callable[[threading.Event, *Arguments], Answer], *args: *Arguments
    ) -> Answer:
        """The result of `read`, whose first argument is set once nobody waits for it any more."""
        unwanted = threading.Event()
        try:
            return await self.run(read, unwanted, *args)
        except asyncio.CancelledError:
            unwanted.set()
            raise

    def close(self) -> None:
        """End the threads, without waiting for reads."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _called(read: Callable[[*Arguments], Answer], *args: *Arguments) -> Answer:
    try:
        return read(*args)
    except StopIteration as error:  # of a user's code; a future cannot have it, and would never be done
        raise RuntimeError(f"{error!r} was raised") from error
