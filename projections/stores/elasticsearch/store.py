"""Views as Elasticsearch indexes: each document carries its guard and is written by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from elasticsearch import Elasticsearch, NotFoundError

from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.clear_columns import ClearColumns
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.elasticsearch.answers import NAME, translated
from headwater.projections.stores.elasticsearch.bulk import ElasticsearchWriter
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows, meta_of
from headwater.projections.stores.elasticsearch.mapping import (
    BULK_SETTINGS,
    CLEAR,
    COMPLETE,
    ERASED,
    LIVE_SETTINGS,
    mapping,
)
from headwater.projections.stores.elasticsearch.rows import ElasticsearchRows
from headwater.projections.stores.names import alias_name, write_alias
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from headwater.projections.stores.writer import Writer


class ElasticsearchStore:
    """Views in one Elasticsearch; for one thread.

    Documents are written first, their ledger afterwards: after a crash in between, patches are applied again, and the
    guard in each document skips them.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "elasticsearch"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._rows = settings, ElasticsearchRows(settings)
        self._ledgers = self._rows.ledgers
        self._writer = Writer(self._rows, NAME, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self.drop(target)
        clear = self._clear(target)
        meta = {COMPLETE: False, **({CLEAR: clear.names, ERASED: clear.last_erasure()} if clear else {})}
        with translated():
            self._client.indices.create(
                index=self._rows.index(target),
                mappings={**mapping(target.view), "_meta": meta},
                settings=dict(BULK_SETTINGS),
                aliases={write_alias(self._rows.index(target)): {}},
            )
        fresh = {partition: ledgers.initial_ledger(bulk_ends, offset) for partition, offset in patch_starts.items()}
        self._ledgers.create(target, fresh)

    def bulk_writer(self, target: Target) -> BulkWriter:
        form, clear = DocumentForm.of(target.view), self._clear(target)
        return ElasticsearchWriter(self._settings.elasticsearch, self._rows.index(target), form, clear)

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        index = self._rows.index(target)
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
        with translated():
            try:
                before = list(self._client.indices.get_alias(name=alias))
            except NotFoundError:
                before = []
            actions: list[dict[str, Any]] = [
                {"remove": {"index": index, "alias": alias}} for index in before if index != self._rows.index(target)
            ]
            actions.append({"add": {"index": self._rows.index(target), "alias": alias}})
            self._client.indices.update_aliases(actions=actions)

    def drop(self, target: Target) -> None:
        with translated():
            self._client.indices.delete(index=self._rows.index(target), ignore_unavailable=True)
        self._ledgers.drop(target)

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        known = self._ledgers.look_up(targets)
        return [{partition: held.ledger.copy() for partition, held in each.items()} for each in known]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self._writer.apply(targets, batches)

    def settle(self, *, now: bool = False) -> None:
        self._ledgers.settle(now=now)

    def close(self) -> None:
        self._rows.close()

    @property
    def _client(self) -> Elasticsearch:
        return self._rows.client
