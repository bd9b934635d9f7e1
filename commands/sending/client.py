"""A client for services that can reach Kafka: it sends commands directly to the log, without HTTP.

`CommandClient` is for asyncio; `BlockingCommandClient` is for threads and runs a `CommandClient` in its own loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakValueDictionary

import orjson
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headwater.commands.declaring.aggregate import Command
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError, Unanswered
from headwater.commands.receipt import Receipt, raise_refusal
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.pipeline import run_each
from headwater.commands.sending.prepared_command import Options, new_command_id, prepare
from headwater.eventlog.actors import NEEDS, actor_of, is_actor
from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.envelope import Position, stream_name
from headwater.eventlog.errors import EventLogError, LogUnavailable
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.installed import installed, is_installed, vault_of
from headwater.eventlog.ports import EventLog
from headwater.eventlog.programs.running_deployment import use_running_deployment
from headwater.eventlog.settings import LogSettings

Result = TypeVar("Result")

ATTEMPTS: Final = 3
IN_FLIGHT: Final = 1_000
_END: Final = object()


@dataclass(frozen=True, slots=True)
class Request:
    """A command with its options; actor: None is that of the client."""

    command: Command
    command_id: str | None = None
    expected_version: int | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one of many commands: a receipt if it was accepted, else an error."""

    request: Request
    command_id: str
    receipt: Receipt | None = None
    error: CommandError | EventLogError | None = None


class CommandClient:
    """Sends commands and awaits their receipts; use it as `async with CommandClient(log, registry) as client`.

    If no receipt came in time, or the log was unavailable, the command is sent again with the same id, up to `attempts`
    times in total: it is executed at most once.
    """

    def __init__(
        self,
        log: EventLog,
        registry: CommandRegistry,
        *,
        timeout_s: float = 10.0,
        attempts: int = ATTEMPTS,
        actor: str | None = None,
    ) -> None:
        """timeout_s: how long one attempt waits for the receipt. actor: who causes the commands; None: is not known."""
        self._actor = _checked(actor)
        self._gateway = CommandGateway(log, registry, timeout_s=timeout_s)
        self._timeout_s, self._attempts = timeout_s, attempts
        self._written: dict[int, int] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By stream, if it may have personal values, while its commands wait for their turn to be appended."""

    async def __aenter__(self) -> Self:
        await self._gateway.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._gateway.close()

    @property
    def position(self) -> str:
        """The positions of this client's events, as a token for `after=` of the API; empty before the first event."""
        return ",".join(str(Position(partition, offset)) for partition, offset in sorted(self._written.items()))

    async def send(self, command: Command, **options: Unpack[Options]) -> Receipt:
        """Send a command and return its receipt; if its stream has a command with the same id, that one's receipt.

        expected_version: None any, 0 must not exist. Raises Rejected, WrongVersion, IdempotencyKeyReused, DecideFailed,
        UnreadableCommand, MalformedCommand, TooLarge or UnknownCommand; and after the last attempt Unanswered or
        LogUnavailable: then send it again later with the same id (of Unanswered: its `command_id`).
        """
        request = Request(command, **options)
        return await self._send(request, request.command_id or new_command_id())

    async def send_many(
        self, commands: AsyncIterable[Command | Request] | Iterable[Command | Request], *, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator[Outcome]:
        """Send commands, at most `in_flight` at once, and yield the outcome of each, in order of completion.

        Commands of one aggregate are decided in their order, except those that had to be sent again. `commands` is read
        no faster than the outcomes are consumed. It runs in the event loop, so pass an asynchronous iterable if reading
        it blocks.
        """
        async with aclosing(self._outcomes(commands, in_flight)) as outcomes_:
            async for outcomes in outcomes_:
                for outcome in outcomes:
                    yield outcome

    async def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        """The receipt of an earlier command of a stream, of any outcome; None if there is none (yet, or any more).

        origin: who chose the id: `client`, `process` or `outbox`; None: the first of these that has it. It finds
        receipts from shortly before the start on, and the latest million. For older ones use the API, or send the
        command again with its id, which returns its first receipt. Raises EarlierReceiptsUnread if receipts cannot be
        followed within the answer timeout, and LogUnavailable.
        """
        if not self._gateway.ready:
            await asyncio.to_thread(self._gateway.wait_ready, self._timeout_s)
        return await self._gateway.receipt(command_id, stream, origin=origin)

    async def _send(self, request: Request, command_id: str) -> Receipt:
        body = request.command.model_dump_json(exclude_unset=True).encode()
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((Unanswered, LogUnavailable)),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        ):
            with attempt:
                receipt = await (await self._appended(request, body, command_id))
        raise_refusal(receipt)
        if (position := receipt.position) is not None:
            self._written[position.partition] = max(position.offset, self._written.get(position.partition, 0))
        return receipt

    async def _appended(self, request: Request, body: bytes, command_id: str) -> asyncio.Future[Receipt]:
        """Append a command; the future has its receipt. Commands of one stream are appended in the order of calls."""
        kind = self._gateway.registry.public_command(request.command.type)
        options: Options = {
            "command_id": command_id,
            "expected_version": request.expected_version,
            "correlation_id": request.correlation_id,
            "causation_id": request.causation_id,
            "traceparent": request.traceparent,
            "actor": _checked(request.actor) or self._actor,
        }
        prepared = partial(prepare, kind, body, datetime.now(UTC), **options)
        if not kind.aggregate.is_personal:
            return self._gateway.send([prepared()])[0]
        aggregate_id = kind.aggregate.identity.of(request.command)
        async with self._turns.setdefault(stream_name(kind.aggregate.name, aggregate_id), asyncio.Lock()):
            fields = kind.command.sealed_fields
            persons = set[str]() if fields is None else fields.persons(orjson.loads(body), aggregate_id)
            if not persons or (is_installed() and installed().can_seal(persons)):
                command = prepared()
            else:  # it asks the store of keys
                command = await asyncio.to_thread(prepared)
            return self._gateway.send([command])[0]

    async def _outcome(self, command: Command | Request) -> Outcome:
        request = command if isinstance(command, Request) else Request(command)
        command_id = request.command_id or new_command_id()
        try:
            return Outcome(request, command_id, await self._send(request, command_id))
        except (CommandError, EventLogError) as error:
            return Outcome(request, command_id, error=error)

    async def _outcomes(
        self, commands: AsyncIterable[Command | Request] | Iterable[Command | Request], in_flight: int
    ) -> AsyncGenerator[Sequence[Outcome], None]:
        """The outcomes, several at a time. Stopping early leaves nothing behind."""
        ready: asyncio.Queue[Any] = asyncio.Queue()
        taken = asyncio.Semaphore(0)

        async def deliver(outcomes: Sequence[Outcome]) -> None:
            ready.put_nowait(outcomes)
            await taken.acquire()

        given = aiter(commands) if isinstance(commands, AsyncIterable) else _iterated(commands)
        running = asyncio.create_task(run_each(given, self._outcome, deliver, in_flight))
        running.add_done_callback(lambda _: ready.put_nowait(_END))
        try:
            while (outcomes := await ready.get()) is not _END:
                yield outcomes
                taken.release()
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class BlockingCommandClient:
    """`CommandClient` for code without asyncio: the same methods, but blocking; safe to use from several threads.

    Use it as `with BlockingCommandClient(log, registry) as client`.
    """

    def __init__(
        self,
        log: EventLog,
        registry: CommandRegistry,
        *,
        timeout_s: float = 10.0,
        attempts: int = ATTEMPTS,
        actor: str | None = None,
    ) -> None:
        """See CommandClient."""
        self._client = CommandClient(log, registry, timeout_s=timeout_s, attempts=attempts, actor=actor)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="command-client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._client.__aexit__(*error))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def position(self) -> str:
        """See CommandClient.position."""
        return self._client.position

    def send(self, command: Command, **options: Unpack[Options]) -> Receipt:
        """See CommandClient.send."""
        return self._run(self._client.send(command, **options))

    def send_many(self, commands: Iterable[Command | Request], *, in_flight: int = IN_FLIGHT) -> Iterator[Outcome]:
        """See CommandClient.send_many; `commands` is read in its own thread, so reading it may block."""
        outcomes = self._client._outcomes(_threaded(commands), in_flight)
        try:
            while (received := self._run(_next(outcomes))) is not None:
                yield from received
        finally:
            self._run(_close(outcomes))

    def receipt(self, command_id: str, stream: str, *, origin: str | None = None) -> Receipt | None:
        """See CommandClient.receipt."""
        return self._run(self._client.receipt(command_id, stream, origin=origin))

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


@asynccontextmanager
async def open_client(env: Mapping[str, str] = os.environ) -> AsyncIterator[CommandClient]:
    """A client of the deployment of the `HEADWATER_*` variables; raises SettingError if one is wrong.

    Where they name no deployment and no server, it is the one that `headwater run` keeps up in the current folder.
    HEADWATER_ACTOR names the actor of its commands.
    """
    with _opened(env) as (log, registry):
        async with CommandClient(log, registry, actor=actor_of(env)) as client:
            yield client


@contextmanager
def open_blocking_client(env: Mapping[str, str] = os.environ) -> Iterator[BlockingCommandClient]:
    """`open_client` for code without asyncio."""
    with _opened(env) as (log, registry), BlockingCommandClient(log, registry, actor=actor_of(env)) as client:
        yield client


@contextmanager
def _opened(env: Mapping[str, str]) -> Iterator[tuple[EventLog, CommandRegistry]]:
    variables = {**env}
    use_running_deployment(variables)
    settings = LogSettings.from_environment(variables)
    registry = CommandRegistry.load(settings.modules)
    with (
        vault_of(variables, settings.environment, LoggedKeys(variables), needed=bool(registry.personal)),
        closing(KafkaLog(settings)) as log,
    ):
        yield log, registry


def _checked(actor: str | None) -> str | None:
    if actor is not None and not is_actor(actor):
        raise ValueError(f"the actor is {actor!r}: use {NEEDS}")
    return actor


async def _iterated(items: Iterable[Command | Request]) -> AsyncIterator[Command | Request]:
    for item in items:
        yield item


async def _threaded(items: Iterable[Command | Request]) -> AsyncIterator[Command | Request]:
    source = iter(items)
    while (item := await asyncio.to_thread(next, source, None)) is not None:
        yield item


async def _next(outcomes: AsyncGenerator[Sequence[Outcome], None]) -> Sequence[Outcome] | None:
    return await anext(outcomes, None)


async def _close(outcomes: AsyncGenerator[Sequence[Outcome], None]) -> None:
    await outcomes.aclose()
