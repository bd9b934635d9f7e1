"""Views as Elasticsearch indexes: each document carries its guard and is written by compare-and-set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import Any, Final, NamedTuple

from elasticsearch import Elasticsearch, NotFoundError, helpers

from headwater.eventlog.access import Program, account
from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.backend import Backend, Rows, Size, clear_comparison, without_empty
from headwater.projections.stores.clear_columns import ClearColumns, clear_state
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows, meta_of
from headwater.projections.stores.elasticsearch.client import (
    CONFLICT,
    NAME,
    ElasticsearchWriter,
    IndexGone,
    Version,
    document,
    documents,
    send,
    state_of,
    translated,
    write,
)
from headwater.projections.stores.elasticsearch.ledgers import ElasticsearchLedgers, version_of
from headwater.projections.stores.elasticsearch.schema import (
    BULK_SETTINGS,
    CLEAR,
    COMPLETE,
    ERASED,
    GUARD,
    LIVE_SETTINGS,
    mapping,
)
from headwater.projections.stores.names import alias_name, document_id, index_name, write_alias
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, ViewStore, no_fault
from headwater.projections.stores.writer import (
    Advanced,
    Encoded,
    FirstKeys,
    LedgerChanged,
    ReadRow,
    RowStore,
    StoredRows,
    Writer,
)
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json

ANSWER_S: Final = 30
"""How long a request may take."""
SEARCH_S: Final = 60
"""How long one may take that reads many rows."""
READ_RETRIES: Final = 3
GENERATION: Final = re.compile(r"\.g[0-9]+$")

READS: Final = ("maintenance", "read", "view_index_metadata")
"""`maintenance`: a refresh, for a request that waits for its own write."""
WRITES: Final = ("manage", "read", "write")
"""`manage`: makes, drops, and refreshes indexes, and moves their aliases."""


class ReadLedgers(NamedTuple):
    """The ledgers of a generation, as this process knows them. versions: of those that are to be written."""

    ledgers: Mapping[int, Ledger]
    versions: Mapping[int, Version]


class ElasticsearchStore(ViewStore, RowStore[ReadLedgers]):
    """Views in one Elasticsearch; for one thread.

    Documents are written first, their ledger afterwards: after a crash in between, patches are applied again, and the
    guard in each document skips them. The version of a row is that of its document. The versions of the ledgers are
    read together with the rows: so nothing is written to rows that were restored from a snapshot, before the restored
    ledger is read.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "elasticsearch"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings = settings
        self._opened: Elasticsearch | None = None
        self._ledgers = ElasticsearchLedgers(settings, lambda: self._client)
        self._writer = Writer(self, NAME, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        meta = {COMPLETE: False, **({CLEAR: clear.names, ERASED: clear.last_erasure()} if clear else {})}
        with translated():
            self._client.indices.create(
                index=self._index(target),
                mappings={**mapping(target.view), "_meta": meta},
                settings=dict(BULK_SETTINGS),
                aliases={write_alias(self._index(target)): {}},
            )
        fresh = {partition: ledgers.initial_ledger(bulk_ends, offset) for partition, offset in patch_starts.items()}
        self._ledgers.create(target, fresh)

    def bulk_writer(self, target: Target) -> BulkWriter:
        form, clear = DocumentForm.of(target.view), self._clear(target)
        return ElasticsearchWriter(self._settings.elasticsearch, self._index(target), form, clear)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        index = self._index(target)
        with translated():
            self._client.indices.put_settings(index=index, settings=dict(LIVE_SETTINGS))
            self._client.indices.flush(index=index)
            self._client.indices.refresh(index=index)
            ledgers.check_rows(NAME, target, self._client.count(index=index)["count"], at_least)
            if clear := self._clear(target):
                ElasticsearchClearRows(self._settings).empty_since(target, clear.erased_since)
            self._client.indices.put_mapping(index=index, meta={**meta_of(self._client, index), COMPLETE: True})
        return ()

    def _clear(self, target: Target) -> ClearColumns:
        return ClearColumns.of(target.view, "elasticsearch", self._settings.environment)

    def publish(self, target: Target) -> None:
        alias = alias_name(self._settings.environment, target.view.name)
        before = self._named(target.view.name)
        with translated():
            actions: list[dict[str, Any]] = [
                {"remove": {"index": index, "alias": alias}} for index in before if index != self._index(target)
            ]
            actions.append({"add": {"index": self._index(target), "alias": alias}})
            self._client.indices.update_aliases(actions=actions)

    def shown(self, view: str) -> int | None:
        numbers = [int(index.rpartition(".g")[2]) for index in self._named(view) if GENERATION.search(index)]
        return max(numbers, default=None)

    def _named(self, view: str) -> list[str]:
        """The indexes behind the alias of a view."""
        with translated():
            try:
                return list(self._client.indices.get_alias(name=alias_name(self._settings.environment, view)))
            except NotFoundError:
                return []

    def drop(self, target: Target) -> None:
        with translated():
            self._client.indices.delete(index=self._index(target), ignore_unavailable=True)
        self._ledgers.drop(target)

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        known = self._ledgers.look_up(targets)
        return [{partition: held.ledger.copy() for partition, held in partitions.items()} for partitions in known]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self._writer.apply(targets, batches)

    def settle(self, *, now: bool = False) -> None:
        self._ledgers.settle(now=now)

    def close(self) -> None:
        """Close the connection; progress that is not in a ledger yet is read again."""
        self._ledgers.forget()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _client(self) -> Elasticsearch:
        """Without retries: a request without an answer may have arrived."""
        if self._opened is None:
            self._opened = Elasticsearch(self._settings.elasticsearch, request_timeout=ANSWER_S, max_retries=0)
        return self._opened

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[ReadLedgers]:
        return [
            ReadLedgers(
                {partition: held_ledger.ledger for partition, held_ledger in held.items()},
                {partition: held[partition].version for partition in partitions if partition in held},
            )
            for held in map(self._ledgers.known, targets)
        ]

    def read_rows(self, target: Target, keys: Sequence[str], known: ReadLedgers) -> dict[str, ReadRow]:
        requests = self._ledgers.version_requests(target, known.versions)
        requests += [{"_index": self._index(target), "_id": document_id(key)} for key in keys]
        with self._of(target):
            found_documents = documents(self._client.mget(docs=requests).body)
        for version, stored in zip(known.versions.values(), found_documents, strict=False):
            if not stored["found"] or version_of(stored) != version:
                self._ledgers.look_again(target)
                raise LedgerChanged
        rows: dict[str, ReadRow] = {}
        for key, stored in zip(keys, found_documents[len(known.versions) :], strict=True):
            if stored["found"]:
                source = stored["_source"]
                state = state_of(target.view, source)
                rows[key] = ReadRow(state, places_from_json(source.get(GUARD)), version_of(stored))
            else:
                rows[key] = ReadRow({}, {})
        return rows

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: ReadLedgers
    ) -> Encoded:
        clear = ClearColumns.of(target.view, "elasticsearch", self._settings.environment)
        form, operations = DocumentForm.of(target.view), list[bytes]()
        in_clear = clear.of_states([{} if row.change == "removed" else row.state for row in rows.values()])
        for (key, row), shown in zip(rows.items(), in_clear, strict=True):
            if row.change == "removed":
                operations.append(write(key, b"", row.held, "delete"))
            else:
                body = document(form, key, row.state, row.guard, shown)
                operations.append(write(key, body, row.held, "create" if row.held is None else "index"))
        return Encoded(operations, sum(map(len, operations)))

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        with self._of(target):
            outcomes = send(self._client, self._index(target), encoded.writes)
        return {key for key, status in zip(rows, outcomes, strict=True) if status == CONFLICT}

    def write_ledgers(self, advanced: Sequence[Advanced[ReadLedgers]]) -> Collection[Target]:
        for advance in advanced:
            self._ledgers.advance(advance.target, advance.ledgers)
        self._ledgers.write(
            [advance.target for advance in advanced], rows=any(advance.has_rows for advance in advanced)
        )
        return ()

    def rows(self, target: Target) -> Rows:
        # a search that the server gives up in between is not found either, but the index is still there
        with self._reading(target) as client:
            client.indices.refresh(index=self._index(target))
        with translated():
            for hit in helpers.scan(client, index=self._index(target), size=CHUNK_ROWS):
                yield from self._read(target, [hit["_source"]])

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with self._reading(target) as client:
            answer = client.mget(index=self._index(target), ids=[document_id(key) for key in keys])
            found_documents = documents(answer.body)
        return dict(self._read(target, [hit["_source"] for hit in found_documents if hit["found"]]))

    def size(self, target: Target) -> Size:
        with self._reading(target) as client:
            client.indices.refresh(index=self._index(target))  # what nobody searches counts as of its last refresh
            stats = client.indices.stats(index=self._index(target), metric=["docs", "store"])["_all"]
        return Size(stats["primaries"]["docs"]["count"], stats["total"]["store"]["size_in_bytes"])

    def find_expired(self, target: Target, last_day: date, limit: int) -> list[str]:
        key, expiry = target.view.key_name, target.view.expiry
        up_to = {"range": {"" if expiry is None else expiry.column: {"lte": last_day.isoformat()}}}
        with self._reading(target) as client:
            client.indices.refresh(index=self._index(target))
            answer = client.search(index=self._index(target), query=up_to, size=limit, source_includes=[key])
        return [hit["_source"][key] for hit in answer["hits"]["hits"]]

    def _read(self, target: Target, sources: Iterable[dict[str, Any]]) -> Rows:
        """The rows of documents, for readers."""
        return ((source[target.view.key_name], without_empty(state_of(target.view, source))) for source in sources)

    def _index(self, target: Target) -> str:
        """The index of a generation."""
        return index_name(self._settings.environment, *target.id)

    @contextmanager
    def _of(self, target: Target) -> Iterator[None]:
        """Raises GenerationMissing if the index is gone, and the client's errors as StoreUnavailable."""
        try:
            with translated():
                try:
                    yield
                except NotFoundError as error:
                    raise GenerationMissing(*target.id) from error
        except IndexGone as error:
            self._ledgers.forget(target)
            raise GenerationMissing(*target.id) from error

    @contextmanager
    def _reading(self, target: Target) -> Iterator[Elasticsearch]:
        """A client that repeats requests."""
        with self._of(target):
            yield self._client.options(request_timeout=SEARCH_S, max_retries=READ_RETRIES)


class ClearElasticsearchRows(ElasticsearchStore):
    """Reads what documents show in clear, and when they expire, instead of their states."""

    def _read(self, target: Target, sources: Iterable[dict[str, Any]]) -> Rows:
        names, expiry = ClearColumns.of(target.view, self.name, "").names, target.view.expiry
        for source in sources:
            expiring = [] if expiry is None else [state_of(target.view, source).get(expiry.column)]
            if shown := clear_state(target.view, {name: source.get(name) for name in names}, expiring):
                yield source[target.view.key_name], shown


def grants(settings: StoreSettings) -> str:
    """The roles, as requests in the form of Kibana's console: a line with the path, and one with the body."""
    privileges = {Program.PROJECTIONS: WRITES, Program.OPERATOR: WRITES, Program.API: READS}
    requests = []
    for program, allowed in privileges.items():
        body = {"indices": [{"names": [f"{settings.environment}.*"], "privileges": list(allowed)}]}
        requests.append(f"PUT _security/role/{account(settings.environment, program)}\n{json.dumps(body)}\n")
    return "\n".join(requests)


_ROWS: Final = partial(StoredRows, ElasticsearchStore, NAME)
BACKEND: Final = Backend(
    ElasticsearchStore,
    _ROWS,
    grants=grants,
    single_rows=_ROWS,
    clear_rows=ElasticsearchClearRows,
    beside_rows=partial(clear_comparison, ElasticsearchStore.name, partial(StoredRows, ClearElasticsearchRows, NAME)),
)
