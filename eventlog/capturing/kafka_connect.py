"""Kafka Connect's REST API: registers, controls and asks about connectors, and changes where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from headwater.eventlog.capturing.errors import ConnectError, ConnectUnavailable
from headwater.eventlog.limits import MAX_RECORD_BYTES

TOO_LARGE: Final = (
    f"a row needs more than {MAX_RECORD_BYTES:,} bytes: shorten a long column with Truncated(…), or take it out of its "
    "class, and run headwater sources apply, which goes on where it stopped, and loses nothing; if it is a "
    "command in the write-ahead log, declare outbox=False, apply, and apply with outbox=True again: commands that were "
    "written up to then are left out"
)
ADVICE: Final[Mapping[str, str]] = {
    "max.request.size": TOO_LARGE,  # of Connect's producer
    "larger than the max message size": TOO_LARGE,  # of the topic
    "unparsed text found": (
        "a time with time zone has an offset with seconds: take its column out of its class, and run "
        "headwater sources apply, which goes on where it stopped"
    ),
    "Conversion of interval failed": (
        "an interval has 2147483648 hours or more: take its column out of its class, and run "
        "headwater sources apply, which goes on where it stopped"
    ),
}
"""By words in the reason."""


def with_advice(reason: str) -> str:
    """The reason for which a connector failed, with what helps if that is known."""
    return next((f"{reason}; {advice}" for words, advice in ADVICE.items() if words in reason), reason)


TIMEOUT_S: Final = 30.0
"""Of one request: the validation of a configuration connects to the database."""
RETRY_S: Final = 15.0
"""How long a request is repeated while Connect does not answer, or distributes its connectors again."""
REBALANCING: Final = 409
NOT_FOUND: Final = 404

Form = TypeVar("Form")


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """What Connect says of a connector: `RUNNING`, `PAUSED`, `STOPPED`, `FAILED`, `UNASSIGNED` or `RESTARTING`.

    task: the same of its one task, which captures; empty if there is none. error: the first line of why it failed, and
    the causes behind it, with what helps if that is known.
    """

    connector: str
    task: str
    error: str = ""

    @property
    def state(self) -> str:
        """The worse of both."""
        return self.task if self.connector == "RUNNING" and self.task else self.connector

    @property
    def is_running(self) -> bool:
        """Whether changes are captured."""
        return self.connector == self.task == "RUNNING"


class _Part(msgspec.Struct):
    state: str
    trace: str = ""


class _Status(msgspec.Struct):
    connector: _Part
    tasks: list[_Part] = []


class _Value(msgspec.Struct):
    name: str
    errors: list[str]


class _Property(msgspec.Struct):
    value: _Value | None


class _Offset(msgspec.Struct):
    offset: dict[str, Any] | None
    partition: dict[str, Any] = {}


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]


class _Refusal(msgspec.Struct):
    message: str


class _Validation(msgspec.Struct):
    configs: list[_Property]


LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class _Rebalancing(Exception):
    """Connect answers 409 while it distributes connectors over its workers."""


class KafkaConnect:
    """A client of one Connect cluster. Each method raises ConnectUnavailable, or ConnectError with Connect's reason.

    retry_s: how long a request is repeated; None: RETRY_S. url: without the password.
    """

    def __init__(self, url: str, retry_s: float | None = None) -> None:
        given = httpx.URL(url)
        # errors and logs show the URL, so the password is not in it
        login = (given.username, given.password) if given.username or given.password else None
        self.url = str(given.copy_with(username="", password=""))
        self._retry_s = RETRY_S if retry_s is None else retry_s
        # a proxy in the environment is never meant for a worker on this machine
        here = given.host in LOOPBACK
        self._http = httpx.Client(base_url=self.url, auth=login, timeout=TIMEOUT_S, trust_env=not here)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def has_plugin(self, name: str) -> bool:
        """Whether the workers have the connector class."""
        plugins = _read(self._request("GET", "/connector-plugins"), list[dict[str, Any]])
        return any(plugin.get("class") == name for plugin in plugins)

    def config(self, connector: str) -> dict[str, str] | None:
        """The configuration of a connector; None if it is not registered."""
        answer = self._request("GET", f"/connectors/{quote(connector)}/config", missing=True)
        return None if answer.status_code == NOT_FOUND else _read(answer, dict[str, str])

    def problems(self, connector: str, config: Mapping[str, str]) -> list[str]:
        """What Connect and the connector find wrong in a configuration, as `property: reason`."""
        path = f"/connector-plugins/{quote(config['connector.class'])}/config/validate"
        answer = _read(self._request("PUT", path, json={**config, "name": connector}), _Validation)
        values = [option.value for option in answer.configs if option.value is not None]
        return [f"{value.name}: {' '.join(error.split())}" for value in values for error in value.errors]

    def register(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its configuration, which restarts it."""
        self._request("PUT", f"/connectors/{quote(connector)}/config", json=dict(config))

    def state(self, connector: str) -> ConnectorState | None:
        """The state of a connector; None if it is not registered."""
        answer = self._request("GET", f"/connectors/{quote(connector)}/status", missing=True)
        if answer.status_code == NOT_FOUND:
            return None
        status = _read(answer, _Status)
        task = status.tasks[0] if status.tasks else _Part(state="")
        reason = reason_of(task.trace or status.connector.trace)
        return ConnectorState(status.connector.state, task.state, with_advice(reason))

    def pause(self, connector: str) -> None:
        """Stop capturing until `resume`; the connector keeps its task and its connections."""
        self._request("PUT", f"/connectors/{quote(connector)}/pause")

    def resume(self, connector: str) -> None:
        """Continue after `pause` or `stop`."""
        self._request("PUT", f"/connectors/{quote(connector)}/resume")

    def stop(self, connector: str) -> None:
        """Stop capturing, and end the task and its connections."""
        self._request("PUT", f"/connectors/{quote(connector)}/stop")

    def restart_failed(self, connector: str) -> bool:
        """Restart the connector and its task, each only if it failed (KIP-745); False if it is not registered."""
        path = f"/connectors/{quote(connector)}/restart?includeTasks=true&onlyFailed=true"
        return self._request("POST", path, missing=True).status_code != NOT_FOUND

    def offset(self, connector: str) -> dict[str, Any] | None:
        """Where a connector goes on after a restart; None if it is not registered, or has stored nothing yet."""
        answer = self._request("GET", f"/connectors/{quote(connector)}/offsets", missing=True)
        if answer.status_code == NOT_FOUND:
            return None
        stored = _read(answer, _Offsets).offsets
        return stored[0].offset if stored else None

    def change_offset(self, connector: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        """Change where a stopped connector goes on; Connect refuses it if the connector is not stopped."""
        path = f"/connectors/{quote(connector)}/offsets"
        (stored, *_) = _read(self._request("GET", path), _Offsets).offsets
        changed = {"partition": stored.partition, "offset": change(stored.offset or {})}
        self._request("PATCH", path, json={"offsets": [changed]})

    def forget_offsets(self, connector: str) -> None:
        """Let a stopped connector begin with a snapshot again."""
        self._request("DELETE", f"/connectors/{quote(connector)}/offsets", missing=True)

    def remove(self, connector: str) -> None:
        """Remove a connector, if it is registered."""
        self._request("DELETE", f"/connectors/{quote(connector)}", missing=True)

    def _request(self, method: str, path: str, json: Any = None, missing: bool = False) -> httpx.Response:
        """An answer; if not `missing`, 404 is an error like any other."""
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type((httpx.TransportError, _Rebalancing)),
                stop=stop_after_delay(self._retry_s),
                wait=wait_exponential(multiplier=0.1, max=2.0),
                reraise=True,
            ):
                with attempt:
                    answer = self._http.request(method, path, json=json)
                    if answer.status_code == REBALANCING:
                        raise _Rebalancing
        except httpx.TransportError as error:
            raise ConnectUnavailable(self.url, str(error) or type(error).__name__) from error
        except _Rebalancing as error:
            raise ConnectError(f"Kafka Connect at {self.url} has been rebalancing for {self._retry_s:.0f} s") from error
        if answer.is_success or (missing and answer.status_code == NOT_FOUND):
            return answer
        try:
            reason = " ".join(msgspec.json.decode(answer.content, type=_Refusal).message.split())
        except msgspec.MsgspecError:
            reason = f"HTTP {answer.status_code}, so HEADWATER_CONNECT may be another server's address"
        raise ConnectError(f"Kafka Connect refused {method} {path}: {reason}")


def _read(answer: httpx.Response, form: type[Form]) -> Form:
    """The document of an answer; raises ConnectError if it has another form."""
    try:
        return msgspec.json.decode(answer.content, type=form)
    except msgspec.MsgspecError as error:
        raise ConnectError(
            f"{answer.request.method} {answer.request.url} answers what Kafka Connect does not ({error}), so "
            "HEADWATER_CONNECT may be another server's address"
        ) from error


def reason_of(trace: str) -> str:
    """The messages of a Java stack trace, outermost first, without its frames and class names."""
    messages: list[str] = []
    for line in trace.splitlines():
        if line.startswith(("\t", " ")) or line.startswith("..."):
            continue
        text = line.removeprefix("Caused by: ").strip()
        name, colon, message = text.partition(": ")
        message = message if colon and " " not in name else text
        if message and not any(message in pattern for pattern in messages):
            messages.append(message)
    return ": ".join(messages)


TABLES: Final = "incremental_snapshot_collections"
SIGNAL: Final = "incremental_snapshot_correlation_id"
PROGRESS: Final = ("incremental_snapshot_primary_key", "incremental_snapshot_maximum_key")
"""How far the first table is read, and up to where."""
INITIAL: Final = "snapshot"
"""In the offset of a connector whose first snapshot is not over. It begins anew if the connector is stopped."""
BROKEN: Final = 'currentDataCollectionId()" is null'
"""What a task fails with if the database refused to let the last table be read: Debezium 3.6 has left it by then."""

Offset = Mapping[str, Any]


class _QueuedTable(msgspec.Struct, frozen=True):
    table: str = msgspec.field(name="incremental_snapshot_collections_id")
    where: str | None = msgspec.field(name="incremental_snapshot_collections_additional_condition", default=None)
    key: str | None = msgspec.field(name="incremental_snapshot_collections_surrogate_key", default=None)


# Tables that a connector is to read again are in its stored offset, where Debezium keeps them. A signal in a topic may
# be lost: a task that starts drops it, one with an earlier configuration ignores tables that it does not know, and
# Debezium 3.6 reads the first rows in the thread that takes the signal, beside the one that reads changes. A table in
# the offset is read by the task that starts with it, before it reads changes, and stays there until its reading has
# ended, through every restart. So an offset is changed only while the connector is stopped.


def is_after_snapshot(offset: Offset | None) -> bool:
    """Whether a connector with this offset makes no first snapshot any more, also if it has made none."""
    return offset is not None and INITIAL not in offset


def queued(offset: Offset | None) -> list[str]:
    """The tables of which all rows are still to be read again, the one that is being read first."""
    return [table.table for table in _queued_tables(offset or {}) if not table.where]


def all_queued(offset: Offset | None) -> list[str]:
    """The tables of which some or all rows are still to be read again."""
    return list(dict.fromkeys(table.table for table in _queued_tables(offset or {})))


def without_tables(offset: Offset) -> dict[str, Any]:
    """The offset without anything to be read again."""
    return {name: value for name, value in offset.items() if name not in (TABLES, SIGNAL, *PROGRESS)}


def with_tables(offset: Offset, tables: Sequence[str], where: str, signal: str) -> dict[str, Any]:
    """The offset with these tables to be read, too. where: a condition of the rows; empty for all.

    A table that is being read already is read from its beginning: it may have changed since. What was to be read of a
    table that is to be read as a whole is left out: so its first end that is reported is that of the whole table.
    """
    before = _queued_tables(offset)
    entries = [entry for entry in before if not entry.where or where or entry.table not in tables]
    new = [_QueuedTable(table, where or None) for table in tables]
    changed = {**offset, SIGNAL: signal}
    if before and (before[0] in new or before[:1] != entries[:1]):
        for name in PROGRESS:
            changed.pop(name, None)
    entries += [entry for entry in new if entry not in entries]
    return {**changed, TABLES: msgspec.json.encode(entries).decode()}


def _queued_tables(offset: Offset) -> list[_QueuedTable]:
    try:
        tables = msgspec.json.decode(offset.get(TABLES) or "[]", type=list[_QueuedTable])
    except msgspec.MsgspecError as error:
        raise ConnectError(f"the connector's offset has a list of tables of another form ({error})") from error
    return [_QueuedTable(signal.table, signal.where or None, signal.key or None) for signal in tables]
