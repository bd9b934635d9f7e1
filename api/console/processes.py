"""`/console/processes`: all processes, their instances and timers, and one instance. Both are read from the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from headwater.api.console.instances import LATE_MS, MAX_SHOWN, OneInstance, TooMany, Totals, read_record
from headwater.api.console.pages import HEADERS, Pages
from headwater.api.errors import BadParameter
from headwater.api.guard import needs
from headwater.api.guard.caller import caller_of
from headwater.api.ports import InstanceRecords
from headwater.api.requests.parameters import check_names, check_no_query, check_text
from headwater.api.service import Service
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import KeysUnavailable, LogUnavailable
from headwater.eventlog.ports import Record
from headwater.eventlog.times import now_ms

PATH: Final = "/console/processes"


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
        besides = {each.name: sorted({*each.events, *each.rows} - each.starting) for each in processes}
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
        return _growing(head, self._read(request, dict(enumerate(ends)), totals, found))

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
            facts = await self._facts(request, one)
            declared = self._service.processes.get(process)
            return self._pages.text(request, "process_found.html", at=_time, declared=declared, **facts)

        head = self._pages.text(request, "process_instance.html", section="processes", process=process, key=key)
        return _growing(head, self._read(request, {partition: ends[partition]}, one, found))

    async def _facts(self, request: Request, one: OneInstance) -> dict[str, Any]:
        """What the record of an instance has. Sealed values are opened for those who may read them."""
        record = None if one.value is None else read_record(one.value)
        if record is not None:
            shown = await self._service.personal.of_rows([{"state": record.state}], ("state",), caller_of(request))
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
        self, request: Request, ends: Mapping[int, int], reading: Reading, found: Callable[[], Awaitable[str]]
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
            yield f"</ol>{await found()}"
        except (LogUnavailable, KeysUnavailable, TooMany) as error:
            yield self._pages.text(request, "scan_ended.html", problem=str(error))


def _growing(page: str, content: AsyncIterator[str]) -> Response:
    """A page that gets its content as it is read."""
    head, _, tail = page.partition("<!-- content -->")

    async def parts() -> AsyncIterator[str]:
        yield head
        async for each in content:
            yield each
        yield tail

    return StreamingResponse(parts(), media_type="text/html", headers=HEADERS | {"X-Accel-Buffering": "no"})


def _time(at_ms: int) -> datetime | None:
    """A time in milliseconds since 1970; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
