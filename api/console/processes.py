"""`/console/processes`: all processes, their instances and timers, and one instance. Both are read from the log."""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from fastapi import APIRouter, Request, Response

from headwater.api.console.pages import Pages, growing
from headwater.api.errors import BadParameter
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.reads.log import InstanceRecords
from headwater.api.requests.parameters import check_names, check_no_query, check_text
from headwater.api.service import Service
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.reacting.instance_index import scheduled_of
from headwater.commands.reacting.instance_store import PARKED_PREFIX, parked_place
from headwater.eventlog.envelope import Envelope, decode, partition_of
from headwater.eventlog.errors import KeysUnavailable, LogUnavailable, NotAnEnvelope
from headwater.eventlog.ports import Record
from headwater.eventlog.times import now_ms
from headwater.projections.table.personal import sealed_in_data

MAX_KNOWN: Final = 200_000
"""Instances of one partition, and records that wait in it, which a page can count."""
MAX_SHOWN: Final = 100
"""Instances in a list, and records that wait for one."""
LATE_MS: Final = 5_000
"""How long after its time a timer may fire if all is well."""
PATH: Final = "/console/processes"


class TooMany(Exception):
    """A partition has more instances, or more waits in it, than a page can count."""

    def __init__(self) -> None:
        super().__init__(
            f"A partition has more than {MAX_KNOWN:,} instances, or more waits in it: too many for this page. The "
            "metrics headwater_process_… of the handlers count them, and an instance can still be found by its key."
        )


class Timer(NamedTuple):
    """The next timer of an instance. due_ms: since 1970."""

    due_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an instance. timers: how many it has set; late: how many of them; next: the first of them."""

    stopped: bool
    timers: int
    late: int
    next: Timer | None


@dataclass(frozen=True)
class Listed:
    """An instance in a list. waiting: records that wait for it."""

    process: str
    key: str
    waiting: int
    timer: Timer | None


@dataclass
class Total:
    """Of one process. waiting: records. late: timers that should have fired."""

    instances: int = 0
    stopped: int = 0
    waiting: int = 0
    timers: int = 0
    late: int = 0


class Totals:
    """Counts the instances of all processes, one partition after another."""

    def __init__(self, now_ms: int) -> None:
        """now_ms: the current time, since 1970."""
        self.of_process: dict[str, Total] = defaultdict(Total)
        self.stopped: list[Listed] = []
        self.due: list[Listed] = []
        """Those whose timers are due first, also the late ones."""
        self._late_ms = now_ms - LATE_MS
        self._known: dict[str, Known] = {}
        self._waiting: dict[str, set[int]] = defaultdict(set)
        self._waits = 0

    def add(self, records: Iterable[Record]) -> None:
        """Take records of the partition, in their order; raises TooMany."""
        for record in records:
            if record.key.startswith(PARKED_PREFIX):
                self._park(*parked_place(record.key), is_there=record.value is not None)
            elif record.value is None:
                self._known.pop(record.key, None)
            else:
                self._known[record.key] = self._read(record.value)
        if len(self._known) > MAX_KNOWN or self._waits > MAX_KNOWN:
            raise TooMany

    def end_partition(self) -> None:
        """All records of a partition were added: count what is left of them."""
        for key in {**self._known, **self._waiting}:
            self._count(key, self._known.get(key))
        self.due = heapq.nsmallest(
            MAX_SHOWN, [*self.due, *self._due()], key=lambda instance: instance.timer or Timer(0, "")
        )
        self._known.clear()
        self._waiting.clear()
        self._waits = 0

    def _read(self, value: bytes) -> Known:
        scheduled = scheduled_of(value)
        timers = [Timer(timer.due_ms, name) for name, timer in scheduled.timers.items()]
        stopped = scheduled.stopped is not None
        late = 0 if stopped else sum(map(self.is_late, timers))
        return Known(stopped, len(timers), late, min(timers, default=None))

    def _park(self, key: str, inbox_offset: int, *, is_there: bool) -> None:
        waiting = self._waiting[key]
        before = len(waiting)
        (waiting.add if is_there else waiting.discard)(inbox_offset)
        self._waits += len(waiting) - before
        if not waiting:
            del self._waiting[key]

    def _count(self, key: str, known: Known | None) -> None:
        listed = self._listed(key, known)
        total = self.of_process[listed.process]
        total.waiting += listed.waiting
        if known is None:  # what waits for an instance that newer code will begin
            return
        total.instances += 1
        total.timers += known.timers
        total.late += known.late
        if known.stopped:
            total.stopped += 1
            if len(self.stopped) < MAX_SHOWN:
                self.stopped.append(listed)

    def _due(self) -> Iterator[Listed]:
        """Instances whose timers can fire."""
        for key, known in self._known.items():
            if known.next is not None and not known.stopped:
                yield self._listed(key, known)

    def is_late(self, timer: Timer) -> bool:
        """Whether a timer should have fired."""
        return timer.due_ms < self._late_ms

    def _listed(self, key: str, known: Known | None) -> Listed:
        process, _, instance = key.partition("/")
        return Listed(process, instance, len(self._waiting.get(key, ())), None if known is None else known.next)


@dataclass(frozen=True)
class InstanceState:
    """The record of an instance. timers: the next one first. stopped: whether it has stopped at an event."""

    state: Any
    shape: str
    stopped: bool
    timers: Sequence[Timer]


def read_record(value: bytes) -> InstanceState | None:
    """The record of an instance; None if it cannot be read. Large integers of the state stay as they are."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    scheduled = scheduled_of(value)
    timers = sorted(Timer(timer.due_ms, name) for name, timer in scheduled.timers.items())
    return InstanceState(document.get("state"), scheduled.shape, scheduled.stopped is not None, timers)


class OneInstance:
    """Finds one instance, and what waits for it, in the records of its partition."""

    def __init__(self, record_key: str) -> None:
        self.value: bytes | None = None
        self.waiting: dict[int, Envelope | None] = {}
        """By offset in `process-inbox`; None: it is a row, or there are too many to keep it."""
        self._key, self._parked = record_key, f"{PARKED_PREFIX}{record_key}/"

    def add(self, records: Iterable[Record]) -> None:
        """Take records of the partition, in their order; raises TooMany."""
        for record in records:
            if record.key == self._key:
                self.value = record.value
            elif record.key.startswith(self._parked) and parked_place(record.key)[0] == self._key:
                self._park(parked_place(record.key)[1], record.value)
        if len(self.waiting) > MAX_KNOWN:
            raise TooMany

    def end_partition(self) -> None:
        """All records were added: nothing is left to do."""

    def _park(self, inbox_offset: int, value: bytes | None) -> None:
        if value is None:
            self.waiting.pop(inbox_offset, None)
            return
        try:
            self.waiting[inbox_offset] = decode(value) if len(self.waiting) < MAX_SHOWN else None
        except NotAnEnvelope:
            self.waiting[inbox_offset] = None


class Reading(Protocol):
    """Takes the records of partitions, in their order."""

    def add(self, records: Iterable[Record]) -> None:
        """Take records of one partition; raises TooMany."""

    def end_partition(self) -> None:
        """All records of the partition were added."""


def process_routes(router: APIRouter, pages: Pages, service: Service) -> None:
    """Add the pages."""
    page = ProcessPages(pages, service)

    for path, endpoint in ((PATH, page.declared), (f"{PATH}/scan", page.scan), (f"{PATH}/instance", page.instance)):
        router.add_api_route(path, endpoint, methods=["GET"], dependencies=needs.operating())


class ProcessPages:
    """The pages of processes of one service. Two of them grow while the log is read; leaving one ends the reading."""

    def __init__(self, pages: Pages, service: Service) -> None:
        self._pages, self._service = pages, service

    async def declared(self, request: Request) -> Response:
        """All processes, as they are declared."""
        check_no_query(request)
        processes = [self._service.processes[name] for name in sorted(self._service.processes)]
        besides = {process.name: sorted({*process.events, *process.rows} - process.starting) for process in processes}
        facts = {"section": "processes", "processes": processes, "besides": besides}
        return self._pages.answer(request, "processes.html", **facts)

    async def scan(self, request: Request) -> Response:
        """The numbers of all instances, those that have stopped, and what is due next."""
        check_no_query(request)
        ends = await self._service.instances.ends()
        totals = Totals(now_ms())

        async def found() -> str:
            names = sorted({*totals.of_process, *self._service.processes})
            facts = {"totals": totals, "names": names, "declared": self._service.processes, "limit": MAX_SHOWN}
            return self._pages.text(request, "process_totals.html", at=_time, **facts)

        head = self._pages.text(request, "process_scan.html", section="processes")
        return growing(head, self._read(request, dict(enumerate(ends)), totals, found))

    async def instance(self, request: Request) -> Response:
        """One instance: its state, its timers, and what waits for it."""
        plain = check_names(request.query_params.multi_items(), ("process", "key"))
        process, key = plain.get("process", ""), plain.get("key", "")
        for name, value in (("process", process), ("key", key)):
            check_text(name, value)
            if not value:
                raise BadParameter(name, "is missing: name the process, and the key of its instance")
        partition = partition_of(record_key := f"{process}/{key}", self._service.waiter.partitions)
        ends = await self._service.instances.ends()
        one = OneInstance(record_key)

        async def found() -> str:
            declared = self._service.processes.get(process)
            facts = await self._facts(request, one, None if declared is None else declared.sealed_fields)
            return self._pages.text(request, "process_found.html", at=_time, declared=declared, **facts)

        head = self._pages.text(request, "process_instance.html", section="processes", process=process, key=key)
        return growing(head, self._read(request, {partition: ends[partition]}, one, found))

    async def _facts(self, request: Request, one: OneInstance, personal: PersonalFields | None) -> dict[str, Any]:
        """What the record of an instance has. Its `personal` values are opened for those who may read them."""
        record = None if one.value is None else read_record(one.value)
        if record is not None:
            sealed = [] if personal is None else sealed_in_data(personal, record.state)
            columns = {"state": lambda _: sealed}
            shown = await self._service.personal.of_rows([{"state": record.state}], columns, caller_of(request))
            record = replace(record, state=shown[0]["state"])
        waiting = sorted(one.waiting.items())
        return {
            "record": record,
            "is_there": one.value is not None,
            "waiting": waiting[:MAX_SHOWN],
            "waits": len(waiting),
            "late": now_ms() - LATE_MS,
        }

    async def _read(
        self, request: Request, ends: Mapping[int, int], reading: Reading, report: Callable[[], Awaitable[str]]
    ) -> AsyncIterator[str]:
        """The progress, and then what was found. ends: of the partitions to read."""
        caller, guard, service = caller_of(request), self._service.guard, self._service
        total, before = sum(ends.values()), 0
        try:
            for partition, end in ends.items():
                portion = InstanceRecords([], 0, ended=False)
                while not portion.ended and guard.is_valid(caller):
                    async with service.work.scans.place():
                        portion = await service.instances.portion(partition, portion.next_offset)
                    await service.folding.run(reading.add, portion.records)
                    done = before + min(portion.next_offset, end)
                    yield self._pages.text(request, "scan_progress.html", done=done, total=max(total, done))
                if not portion.ended:
                    return
                await service.folding.run(reading.end_partition)
                before += end
            text = await report()
            if guard.is_valid(caller):
                yield f"</ol>{text}"
        except (LogUnavailable, KeysUnavailable, TooMany) as error:
            yield self._pages.text(request, "scan_ended.html", problem=str(error))


def _time(at_ms: int) -> datetime | None:
    """A time in milliseconds since 1970; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
