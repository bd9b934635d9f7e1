"""Requests to Elasticsearch: documents that are written, in bulk too, and answers, each item of which may fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from elasticsearch import ApiError, Elasticsearch, TransportError
from elasticsearch.helpers import ScanError

from headwater.projections.errors import LacksRight, StoreUnavailable, Unloadable
from headwater.projections.stores.clear_columns import KEYS, NO_COLUMNS, NOTHING, ClearColumns, InClear
from headwater.projections.stores.documents import DocumentForm, Guard, is_deleted
from headwater.projections.stores.elasticsearch.schema import GUARD, SORTED, STATE, texts
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import document_id, write_alias
from headwater.projections.table.layout import DELETED
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_to_json
from headwater.projections.view import View

if TYPE_CHECKING:
    import pyarrow as pa


NAME: Final = "Elasticsearch"
CONFLICT: Final = 409
TOO_LARGE: Final = 413
INDEX_GONE: Final = "index_not_found_exception"
NO_RIGHT: Final = "security_exception"
REFUSED: Final = frozenset(
    {
        "document_parsing_exception",
        "mapper_parsing_exception",
        "strict_dynamic_mapping_exception",
        "x_content_parse_exception",
        "illegal_argument_exception",
    }
)
"""Errors caused by the document: a retry would fail again. For other errors, the caller waits."""

REQUEST_BYTES: Final = 16 * 1024 * 1024
ANSWER: Final = ("items.*.status", "items.*.error.type", "items.*.error.reason", "items.*.error.caused_by.reason")


class IndexGone(StoreUnavailable):
    """The index of a generation was dropped."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as StoreUnavailable."""
    try:
        yield
    except (TransportError, ApiError, ScanError) as error:
        raise unavailable(error) from error


def unavailable(error: TransportError | ApiError | ScanError) -> StoreUnavailable:
    """What the client's error means."""
    kind = LacksRight if isinstance(error, ApiError) and error.error == NO_RIGHT else StoreUnavailable
    return kind(NAME, str(error))


def documents(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `mget` found and did not find, in the order of the ids.

    Raises IndexGone, and StoreUnavailable if a document could not be read, for example because its shard is not
    assigned: then it is not known whether the document exists.
    """
    for hit in answer["docs"]:
        if "error" in hit:
            raise _problem(hit["error"])
    return list(answer["docs"])


def statuses(answer: Mapping[str, Any]) -> list[int]:
    """The status of each item of a `bulk`: success or CONFLICT.

    Raises IndexGone, Unloadable if a document does not match the mapping, and StoreUnavailable for other errors.
    """
    outcomes = [outcome for item in answer["items"] for outcome in item.values()]
    failed = [outcome for outcome in outcomes if outcome["status"] >= 300 and outcome["status"] != CONFLICT]
    for outcome in sorted(failed, key=lambda status: not _is_of_data(status)):  # refused items can be left out
        error = outcome.get("error", {})
        if _is_of_data(outcome):
            raise Unloadable(NAME, _reason(error))
        raise _problem(error)
    return [outcome["status"] for outcome in outcomes]


def _is_of_data(outcome: Mapping[str, Any]) -> bool:
    error = outcome.get("error", {})
    if outcome["status"] == TOO_LARGE:
        return True
    # two indexes behind one write alias, as after a restore, are not caused by the document
    of_the_alias = error.get("type") == "illegal_argument_exception" and "alias" in str(error.get("reason"))
    return outcome["status"] == 400 and error.get("type") in REFUSED and not of_the_alias


def _problem(error: Mapping[str, Any]) -> StoreUnavailable:
    if error.get("type") == INDEX_GONE:
        return IndexGone(NAME, _reason(error))
    if error.get("type") == NO_RIGHT:
        return LacksRight(NAME, _reason(error))
    return StoreUnavailable(NAME, f"{error.get('type')}: {_reason(error)}")


def _reason(error: Mapping[str, Any]) -> str:
    return f"{error.get('reason')} {error.get('caused_by', {}).get('reason', '')}".strip()


Version = tuple[int, int]
"""`_seq_no` and `_primary_term` of a document."""


@dataclass(frozen=True)
class ElasticsearchWriter:
    """Indexes the rows of one Spark partition; a repeated task writes the same documents again."""

    url: str
    index: str
    form: DocumentForm
    clear: ClearColumns = NO_COLUMNS

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        written = 0
        # the same documents may be written again, and failing would repeat the whole rebuild
        with translated(), Elasticsearch(self.url, request_timeout=60, max_retries=2, retry_on_timeout=True) as client:
            for chunk in self.form.chunks(rows):
                operations: list[bytes] = []
                with loadable(NAME):
                    in_clear = self.clear.of_states([state for _, state in chunk])
                    for (key, state), clear in zip(chunk, in_clear, strict=True):
                        operations.append(write(key, document(self.form, key, state, {}, clear)))
                send(client, self.index, operations)
                written += len(chunk)
        return written


def document(form: DocumentForm, key: str, state: State, guard: Guard, clear: InClear = NOTHING) -> bytes:
    """A row as it is stored: visible columns, state fields, and guard. Columns in clear are sealed in the state."""
    shown = form.show(key, state)
    hidden = {name: value for name, value in state.items() if name not in shown or name in clear.values}
    shown |= clear.values
    body = {**shown, STATE: hidden, GUARD: places_to_json(guard), DELETED: is_deleted(state)}
    if clear.values:
        body[KEYS] = clear.key_ids
    if form.exact:
        body[SORTED] = texts(form.exact, shown)
    return orjson.dumps(body)


def state_of(view: View, source: Mapping[str, Any]) -> State:
    """The state of a stored row.

    Every document has a visible mark of deletion, which queries read; the row's own mark, if it has one, is in STATE.
    """
    shown = {field.name: source[field.name] for field in view.layout.fields if field.name in source}
    shown.pop(DELETED, None)
    return {**shown, **source[STATE]}


def write(key: str, body: bytes, held: Version | None = None, action: str = "index") -> bytes:
    """What writes the document of a row: in any case, or only over this version; action: index, create or delete."""
    return write_document(document_id(key), body, held, action)


def write_document(id_: str, body: bytes, held: Version | None = None, action: str = "index") -> bytes:
    """Likewise, by the id of the document."""
    what: dict[str, Any] = {"_id": id_}
    if held is not None:
        what["if_seq_no"], what["if_primary_term"] = held
    head = orjson.dumps({action: what})
    return head + b"\n" + body if body else head


def send(client: Elasticsearch, index: str, operations: Sequence[Any]) -> list[int]:
    """Write documents, see `write`; see `statuses` for the result.

    The requests have a limited size, because a batch of patches may change thousands of large rows. Raises Unloadable
    also if one document alone is more than the server, or a proxy in front of it, takes.
    """
    sizes: list[int] = []
    with translated():
        for part in _parts(operations):
            sizes += _send_part(client, index, part)
    return sizes


def _send_part(client: Elasticsearch, index: str, part: Sequence[Any]) -> list[int]:
    """Write documents in one request, or in halves of it if it is too large."""
    try:
        # through an alias: writing to a missing index would create it without a mapping
        answer = client.bulk(index=write_alias(index), operations=list(part), require_alias=True, filter_path=[*ANSWER])
    except ApiError as error:
        if error.status_code != TOO_LARGE:
            raise
        if len(part) == 1:
            limit = "than the server, or a proxy in front of it, takes in a request (HTTP 413)"
            raise Unloadable(NAME, f"the row has {len(part[0]):,} bytes, which is more {limit}") from error
        middle = len(part) // 2
        return [*_send_part(client, index, part[:middle]), *_send_part(client, index, part[middle:])]
    return statuses(answer.body)


def _parts(operations: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start = size = 0
    for at, operation in enumerate(operations):
        if size and size + len(operation) > REQUEST_BYTES:
            yield operations[start:at]
            start, size = at, 0
        size += len(operation)
    yield operations[start:]
