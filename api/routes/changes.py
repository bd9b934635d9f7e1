"""`GET /views/{view}/changes`: server-sent events of a view's changes, so that a page can follow its rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from headwater.api.changes.subscription import Delivery, FollowerPosition, Reason, Subscription
from headwater.api.errors import BadParameter, NotFollowed
from headwater.api.guard.caller import Caller, caller_of
from headwater.api.requests.parameters import check_names, read_integer
from headwater.api.routing import left
from headwater.api.service import Service
from headwater.projections.view import View

MEDIA_TYPE: Final = "text/event-stream"
PARAMETERS: Final = ("key", "from", "for_ms")
MAX_KEYS: Final = 100
TIME_IS_UP: Final[Reason] = "time_is_up"
EXPIRED: Final[Reason] = "expired"
MAX_FOLLOWING_MS: Final = 24 * 60 * 60 * 1000
PIECE_BYTES: Final = 64 * 1024
"""Of a delivery that are written at once."""
DESCRIPTION: Final = """\
Server-sent events (`EventSource`), until the connection ends.

- `open`: `{"position", "generation"}`. Read the rows now, from any store; whatever they lack follows.
- `change`: `{"key", "row", "position"}`. `row` is the row after the change, null if it was removed or expired. Several
  quick changes of a row may be sent as one. `position` is the position of the event in the log; it is null in a
  stream view, whose rows come from many records, and of a row that expired or that `replay` replaced. Columns that are
  looked up in another view have their value at the time of sending; if only the other view's row changes, no `change`
  is sent.
- `reset`: `{"reason"}`. Read all rows again; changes continue. The reason is that the view was rebuilt
  (`generation_changed`), that the missed changes are no longer stored, or are unknown because rows of the view expire
  (`position_gone`), that a person was erased whose values you may show (`person_erased`), or that they are too many
  (`too_far_behind`). They may be too many because a store of the view was
  far behind or did not answer; `reset` is sent once it is near again.
- `end`: `{"reason"}`. Connect again after `too_slow` (the client read too slowly), `closing` (the server stops) or
  `failed` (an internal error). `time_is_up`: the time of `for_ms` has passed. `expired`: the API key or token is not
  valid any more; connect again with another one. `read_again`: connect again, and read all rows again.

If only some rows of the view exist for the caller, a row that stops to be one of them is sent with the `row` null. Then
there are no positions and ids: after a lost connection, read all rows again. With many such rows, `key` is needed.

To receive the changes missed during a disconnection, send the id of the last event: browsers send `Last-Event-ID`
automatically, other clients can use `from`.
"""


def is_followed(view: View) -> bool:
    """Whether changes of its rows can be sent: not those of counts of captured rows, which stores compute."""
    return view.layout.retraction is None


async def follow(service: Service, view: View, request: Request) -> Response:
    """The changes of a declared view; raises NotFollowed, BadParameter and what following raises."""
    if not is_followed(view):
        raise NotFollowed(view.name, view.key_name)
    parameters = request.query_params.multi_items()
    plain = check_names(parameters, PARAMETERS, repeatable=("key",))
    keys = frozenset(value for name, value in parameters if name == "key")
    if len(keys) > MAX_KEYS:
        raise BadParameter("key", f"has more than {MAX_KEYS} values: follow all rows, or send several requests")
    for_ms = read_integer("for_ms", plain["for_ms"], 1, MAX_FOLLOWING_MS) if "for_ms" in plain else None
    since = request.headers.get("last-event-id") or plain.get("from")
    if "from" in plain and FollowerPosition.read(plain["from"], service.feeds.partitions) is None:
        raise BadParameter("from", "is not the position of a change: use the `id` of the last event")
    subscription = await service.feeds.follow(view, keys or None, since, caller_of(request))
    for_s = None if for_ms is None else for_ms / 1000
    return _EventStream(service, caller_of(request), subscription, since, for_s)


class _EventStream(Response):
    """The events of one follower."""

    media_type = MEDIA_TYPE

    def __init__(
        self, service: Service, caller: Caller, subscription: Subscription, since: str | None, for_s: float | None
    ) -> None:
        # else proxies that buffer answers would delay events
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._service, self._subscription, self._since = service, subscription, since
        self._caller, self._for_s = caller, for_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI, until the client leaves, is disconnected, or the time is up."""
        del self.headers["content-length"]
        tasks = {asyncio.create_task(self._write(send)), asyncio.create_task(left(receive))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._service.feeds.leave(self._subscription)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        heartbeat_s = self._service.limits.heartbeat_s
        ends = None if self._for_s is None else time.monotonic() + self._for_s

        async def write(content: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await write(self._opening())
        guard, expired, over, ended = self._service.guard, False, False, False
        while not (over or ended or expired):
            left_s = heartbeat_s if ends is None else min(heartbeat_s, ends - time.monotonic())
            delivery = await _taken(self._subscription, max(min(left_s, guard.left_s(self._caller)), 0))
            if expired := not guard.is_valid(self._caller):
                break  # what it was about to get, it may not have any more
            over = ends is not None and time.monotonic() >= ends
            if delivery is not None:
                for piece in _pieces(delivery):
                    if expired := not guard.is_valid(self._caller):
                        break  # while the piece before was written
                    await write(piece)
                ended = delivery.ended is not None
            elif not over:
                await write(b": heartbeat\n" + _place(self._subscription) + b"\n")  # a comment that keeps it open
        if expired:
            await write(_event("end", {"reason": EXPIRED}))
        elif not ended:
            await write(_place(self._subscription) + _event("end", {"reason": TIME_IS_UP}))
        await write(b"", more=False)

    def _opening(self) -> bytes:
        position = self._subscription.position
        document = {"position": position or None, "generation": self._subscription.generation}
        if not position and self._since is not None:  # it counts the changes of all rows, which this caller may not see
            return _event("open", document) + _event("reset", {"reason": "position_gone"})
        # a returning follower keeps its id until it has what it missed
        place = b"" if self._since is not None else _id(position)
        return place + _event("open", document)


async def _taken(subscription: Subscription, within_s: float) -> Delivery | None:
    try:
        async with asyncio.timeout(within_s):
            return await subscription.take()
    except TimeoutError:
        return None


def _pieces(delivery: Delivery) -> Iterator[bytes]:
    """Its text, in pieces, because one text of all changes per follower would not be shared by them."""
    events: list[bytes] = [] if delivery.reset is None else [_event("reset", {"reason": delivery.reset})]
    size_bytes = 0
    for number, change in enumerate(delivery.changes, 1):
        if number == len(delivery.changes):
            # only the last event has the id: after a lost connection, a client gets all of them again
            events.append(_id(delivery.position))
        events += [change.event, b"\n"]
        size_bytes += len(change.event)
        if size_bytes > PIECE_BYTES:
            yield b"".join(events)
            events, size_bytes = [], 0
    if delivery.reset is not None and not delivery.changes:
        events.insert(0, _id(delivery.position))
    if delivery.ended is not None:
        events.append(_event("end", {"reason": delivery.ended}))
    yield b"".join(events)


def _place(subscription: Subscription) -> bytes:
    """The id from which a follower may continue: none, if something before it was not sent."""
    return _id(subscription.position) if subscription.settled else b""


def _event(name: str, document: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(document))


def _id(position: str) -> bytes:
    return b"id: %b\n" % position.encode() if position else b""
