"""`/health/live`, `/health/ready` and `/metrics`: what supervisors and Prometheus read."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headwater.api.errors import ApiError, NotCaughtUp, SeveralWorkers, ViewPaused
from headwater.api.guard import needs
from headwater.api.limits import Shared
from headwater.api.openapi import schemas
from headwater.api.openapi.components import RETRY_AFTER, documented
from headwater.api.openapi.documents import Health
from headwater.api.problems import shown
from headwater.api.reading import KeyReaders, ViewReader
from headwater.api.requests.parameters import check_no_query
from headwater.api.routing import router_of
from headwater.api.service import Service
from headwater.api.waiting.awaited import After
from headwater.commands.errors import CommandError
from headwater.eventlog.envelope import Position
from headwater.eventlog.errors import EventLogError, KeysUnavailable, WrongKeyStore
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.eventlog.source_positions import positions_text, topic_and_partition
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import GenerationMissing, ProjectionError
from headwater.projections.view import View

HOLD_S: Final = 60.0
"""How long views may keep a new process from being ready, if some are built: one that cannot be built, or that is far
behind, must not keep all commands away."""
READY: Final = "ready"
DESCRIPTION: Final = """\
The metrics of the API in the text format of Prometheus.

If several processes serve this address, each has metrics of its own, on the ports from `HEADWATER_METRICS_PORT` on.
"""
TIMEOUT_S = 3.0
LOOK_S: Final = 1.0
"""How old an answer about readiness may be: nobody needs a key to ask."""
KEYS_AGAIN_S: Final = 5.0
"""How long a store of keys that is wrong, or does not answer, is not asked again: the log is read for it."""

logger = logging.getLogger(__name__)


class ViewsAtStart:
    """Checks once that every view has applied what the log had when the process was first asked.

    Later, a view that is behind is a matter of the requests that read it.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: returns the time in seconds."""
        self._service, self._clock = service, clock
        self._views = [view for view in service.views.values() if any(store.answers for store in view.stores)]
        self._left = list(self._views)
        self._asked_at: float | None = None
        self._after = ""

    async def state(self) -> str:
        """`ready`, or why not. Raises StoreUnavailable or LogUnavailable."""
        if not self._left:
            return READY
        asked_at = self._asked_at = self._clock() if self._asked_at is None else self._asked_at
        unbuilt = list[str]()
        for view in self._views:
            try:
                await self._service.generations.live(view)
            except GenerationMissing:
                unbuilt.append(view.name)
        if len(unbuilt) == len(self._views):
            return "no view is built yet: start `headwater projections`"
        if self._clock() - asked_at >= HOLD_S:
            names = ", ".join(view.name for view in self._left)
            logger.warning("ready, although after %g s these views are not built or up to date: %s", HOLD_S, names)
            self._left = []
            return READY
        if unbuilt:
            return f"not built yet: {', '.join(unbuilt)}"
        return await self._applied()

    async def _applied(self) -> str:
        """Whether all views have applied the last events at the first time that there were some."""
        if not self._after:
            ends = await self._service.events.ends((EVENTS,))
            if not await self._service.events.hold_events(ends):
                # queries of stream views begin with the first event: until then, nobody applies heartbeats
                self._left = [view for view in self._left if not view.has_own_query]
            self._after = positions_text({source: await self._last(source, end) for source, end in ends.items() if end})
        if not self._after:
            return "the log is empty: start `headwater handler`"
        after = After(self._after, wait_ms=0)
        for view in list(self._left):

            async def wait(reader: ViewReader, view: View = view) -> None:
                await self._service.waiter.reach(view, reader, after)

            try:
                with suppress(ViewPaused):  # it answers with what it has, for as long as an operator wants
                    await KeyReaders(self._service.readers, view).ask(wait)
            except NotCaughtUp as error:
                behind = "an unknown number of" if error.lag_events is None else error.lag_events
                return f'view "{view.name}" is {behind} events behind'
            self._left = [other for other in self._left if other is not view]
        return READY

    async def _last(self, source: str, end: int) -> int:
        """The offset of the last event before `end`, where the end of its transaction may be."""
        at = Position(topic_and_partition(source)[1], end - 1)
        return end - 2 if end > 1 and await self._service.events.event_at(at) is None else end - 1


def health_routes(service: Service) -> APIRouter:
    """The routes for supervisors and load balancers."""
    router, views = router_of("health"), ViewsAtStart(service)
    # the first question to the store of keys compares it with what the log notes
    keys = Shared(lambda: asyncio.to_thread(lambda: installed().last_erasure()), math.inf, failed_for_s=KEYS_AGAIN_S)

    async def look() -> Health:
        log, registry, handlers, key_store = await asyncio.gather(
            _check(_log(service)), _check(_registry(service)), _handlers(service), _check(_keys(service, keys))
        )
        receipts = READY if service.gateway.ready else "earlier receipts are still being read"
        parts = {"log": log, "receipts": receipts, "registry": registry}
        if log == registry == READY:
            parts["views"] = await _check(views.state())
        if service.personal.any:
            parts["keys"] = key_store
        return {
            "status": READY if all(state == READY for state in parts.values()) else "not ready",
            "environment": service.environment,
            "instance": service.instance,
            "parts": {**parts, "handlers": handlers},
        }

    readiness = Shared(look, LOOK_S)

    async def live(request: Request) -> Response:
        """Whether the process answers."""
        check_no_query(request)
        return Response(orjson.dumps({"status": "live"}), media_type="application/json")

    async def ready(request: Request) -> Response:
        """Whether the process can serve requests: the state of the log, the receipts, the registry and the views, and
        whether the store of keys is that of the deployment, if fields are personal.

        `handlers` names commands and events whose code does not return; only their number, if the API knows its
        callers, because this path needs none. Their partitions wait, and all others are served, so the process is ready
        nevertheless. It is looked at once per second at most, however many ask.
        """
        check_no_query(request)
        document = await readiness.current()
        is_ready = document["status"] == READY
        headers = {} if is_ready else {"Retry-After": "2"}
        return Response(orjson.dumps(document), 200 if is_ready else 503, headers, "application/json")

    async def read_metrics(request: Request) -> Response:
        """What this process measures."""
        check_no_query(request)
        if service.workers > 1:
            raise SeveralWorkers(service.workers)
        return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)

    responses: dict[int | str, Any] = {
        200: schemas.answer("Ready.", "Health"),
        503: schemas.answer("Not ready.", "Health", RETRY_AFTER),
    }
    router.add_api_route(
        "/health/live",
        live,
        methods=["GET"],
        response_class=Response,
        responses={200: schemas.answer("The process answers.", "Health")},
    )
    router.add_api_route("/health/ready", ready, methods=["GET"], response_class=Response, responses=responses)
    text = {"text/plain": {"schema": {"type": "string"}}}
    router.add_api_route(
        "/metrics",
        read_metrics,
        methods=["GET"],
        dependencies=needs.operating(),
        operation_id="read_metrics",
        summary="What the API measures.",
        description=DESCRIPTION,
        response_class=Response,
        responses={200: {"description": "The metrics.", "content": text}, **documented(409, 422, 500)},
    )
    return router


async def _log(service: Service) -> None:
    await service.events.ends((EVENTS,))


async def _registry(service: Service) -> None:
    for view in list(service.views.values())[:1]:
        try:
            await service.generations.live(view, fresh=True)
        except GenerationMissing:  # the registry answers; queries of the view report that it is not built
            return


async def _keys(service: Service, compared: Shared[int]) -> None:
    """Raises WrongKeyStore. Without an answer of the store, what needs no key of a person is served."""
    try:
        if service.personal.any:
            await compared.current()
    except WrongKeyStore:
        raise
    except KeysUnavailable as error:
        shown(error)


async def _handlers(service: Service) -> str:
    slow: list[str] = []

    async def read() -> None:
        slow.extend(await service.events.slow_code())

    state = await _check(read())
    if slow and not service.guard.is_open:
        return f"{len(slow)} partitions wait for code that does not return: the logs of the handlers name it"
    return "; ".join(slow) or state


async def _check(answer: Awaitable[str | None]) -> str:
    """`ready`, or what is not; answer: the same, None if it is ready, or an error."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await answer or READY
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except (ApiError, CommandError, EventLogError, ProjectionError) as error:
        return shown(error)
