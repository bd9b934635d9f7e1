"""The bulk path into Elasticsearch, and how a row is written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson
from elasticsearch import ApiError, Elasticsearch, TransportError

from projections.errors import StoreUnavailable, Unloadable
from projections.monoids import State
from projections.stores.documents import DocumentForm, Guard, guard_to_json, is_deleted
from projections.stores.elasticsearch_mapping import GUARD, STATE
from projections.stores.names import document_id, write_alias
from projections.view import DELETED

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "Elasticsearch"
BULK_ROWS: Final = 1_000
CONFLICT: Final = 409
ANSWER: Final = ["errors", "items.*.status", "items.*.error.reason", "items.*.error.caused_by.reason"]


class IndexGone(StoreUnavailable):
    """The index of a generation was dropped."""


@dataclass(frozen=True)
class ElasticsearchWriter:
    """Indexes the rows of one Spark partition; a repeated one writes the same documents again."""

    url: str
    index: str
    form: DocumentForm

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        written = 0
        with translated(), Elasticsearch(self.url, request_timeout=60, max_retries=2) as client:
            folded = (self.form.from_arrow(row) for batch in rows for row in batch.to_pylist())
            while chunk := list(islice(folded, BULK_ROWS)):
                operations: list[bytes] = []
                for key, state in chunk:
                    operations += [index_row(key), document(self.form, key, state, {})]
                send(client, self.index, operations)
                written += len(chunk)
        return written


def document(form: DocumentForm, key: str, state: State, guard: Guard) -> bytes:
    """A row as it is stored: what is shown, the fields behind it, and what has been applied."""
    shown = form.show(key, state)
    hidden = {name: value for name, value in state.items() if name not in shown}
    body = {**shown, STATE: hidden, GUARD: guard_to_json(guard), DELETED: is_deleted(state)}
    return orjson.dumps(body)


def index_row(key: str, version: tuple[int, int] | None = None) -> bytes:
    """The line before a document: write it whatever is there, or only over this `_seq_no` and `_primary_term`."""
    what: dict[str, Any] = {"_id": document_id(key)}
    if version is not None:
        what["if_seq_no"], what["if_primary_term"] = version
    return orjson.dumps({"index": what})


def create_row(key: str) -> bytes:
    """The line before a document that must not be there yet."""
    return orjson.dumps({"create": {"_id": document_id(key)}})


def send(client: Elasticsearch, index: str, operations: Sequence[Any]) -> list[int]:
    """Write documents and return the status of each: success or CONFLICT.

    Raises Unloadable where one does not fit the mapping, IndexGone, and StoreUnavailable for what else went wrong.
    """
    with translated():
        # through an alias: a plain name that is gone would be created anew, without a mapping
        answer = client.bulk(index=write_alias(index), operations=operations, require_alias=True, filter_path=ANSWER)
    outcomes = [outcome for item in answer["items"] for outcome in item.values()]
    if answer["errors"]:
        for outcome in outcomes:
            if outcome["status"] == 404:
                raise IndexGone(NAME, f'index "{index}" is gone')
            if 400 <= outcome["status"] < 500 and outcome["status"] not in (CONFLICT, 429):
                raise Unloadable(NAME, _reason(outcome))
        for outcome in outcomes:
            if outcome["status"] >= 300 and outcome["status"] != CONFLICT:
                raise StoreUnavailable(NAME, _reason(outcome))
    return [outcome["status"] for outcome in outcomes]


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as StoreUnavailable."""
    try:
        yield
    except (TransportError, ApiError) as error:
        raise StoreUnavailable(NAME, str(error)) from error


def _reason(outcome: dict[str, Any]) -> str:
    error = outcome.get("error", {})
    return f"{error.get('reason')} {error.get('caused_by', {}).get('reason', '')}".strip()
