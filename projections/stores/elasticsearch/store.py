"""Views as Elasticsearch indexes: each document carries its guard and is written by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from elasticsearch import Elasticsearch, NotFoundError

from projections.errors import GenerationMissing, StoreUnavailable
from projections.limits import ATTEMPTS
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.clear_columns import ClearColumns
from projections.stores.documents import DocumentForm, Guard, by_key, take_new_patches
from projections.stores.elasticsearch.answers import CONFLICT, NAME, IndexGone, documents, translated
from projections.stores.elasticsearch.bulk import ElasticsearchWriter, create_row, document, index_row, send, state_of
from projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows, meta_of
from projections.stores.elasticsearch.ledgers import ElasticsearchLedgers, LedgerChanged, Version, version_of
from projections.stores.elasticsearch.mapping import (
    BULK_SETTINGS,
    CLEAR,
    COMPLETE,
    ERASED,
    GUARD,
    LIVE_SETTINGS,
    mapping,
)
from projections.stores.groups import Groups
from projections.stores.names import alias_name, document_id, index_name, write_alias
from projections.stores.store import Batch, BulkWriter, Ledger, Target, no_fault
from projections.table.monoids import State
from projections.table.patch import Patch, places_from_json

ANSWER_S: Final = 30
"""How long a request may take."""

Row = tuple[State, Guard, Version | None]
"""A row as it was read; without a version it does not exist yet."""


class ElasticsearchStore:
    """Views in one Elasticsearch; for one thread.

    Documents are written first, their ledger afterwards: after a crash in between, patches are applied again, and the
    guard in each document skips them. The versions of the ledgers are read together with the rows. So nothing is
    written to rows that were restored from a snapshot, before the restored ledger is read.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "elasticsearch"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._opened: Elasticsearch | None = None
        self._ledgers = ElasticsearchLedgers(settings, lambda: self._client)
        self._groups = Groups()

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
        with translated():
            try:
                before = list(self._client.indices.get_alias(name=alias))
            except NotFoundError:
                before = []
            actions: list[dict[str, Any]] = [
                {"remove": {"index": index, "alias": alias}} for index in before if index != self._index(target)
            ]
            actions.append({"add": {"index": self._index(target), "alias": alias}})
            self._client.indices.update_aliases(actions=actions)

    def drop(self, target: Target) -> None:
        with translated():
            self._client.indices.delete(index=self._index(target), ignore_unavailable=True)
        self._ledgers.drop(target)

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        (found,) = self.all_ledgers([target])
        return found

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        known = self._ledgers.look_up(targets)
        return [{partition: deepcopy(held.ledger) for partition, held in each.items()} for each in known]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        wrote = [self._apply(target, batches) for target in targets]
        self._fault("rows written")
        self._ledgers.write(targets, rows=any(wrote))
        self._fault("ledger written")

    def settle(self, *, now: bool = False) -> None:
        self._ledgers.settle(now=now)

    def close(self) -> None:
        """Close the connection; progress that is not in a ledger yet is read again."""
        self._ledgers.forget()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _apply(self, target: Target, batches: Mapping[int, Batch]) -> bool:
        """Write the rows of one generation and advance the ledgers in memory; returns whether there were rows."""
        for _ in range(ATTEMPTS):
            known = self._ledgers.known(target)
            ledgers.check(NAME, target, {partition: held.ledger for partition, held in known.items()}, batches)
            advanced = {partition: deepcopy(known[partition].ledger) for partition in batches}
            fresh: list[Patch] = []
            for partition, batch in batches.items():
                fresh += ledgers.take_new(advanced[partition], batch, target.tag)
            try:
                if fresh:
                    versions = {partition: known[partition].version for partition in batches}
                    first, read = self._groups_of(target, fresh, versions)
                    for some in (first, fresh):
                        for group in self._groups.of(target, by_key(some)):
                            self._write_rows(target, group, versions, read)
            except LedgerChanged:
                self._ledgers.look_again(target)
                continue
            except IndexGone as error:
                self._ledgers.forget(target)
                raise GenerationMissing(*target.id) from error
            for partition, ledger in advanced.items():
                known[partition].ledger, known[partition].dirty = ledger, True
            return bool(fresh)
        raise StoreUnavailable(NAME, f'the ledgers of "{target.view.name}" lost {ATTEMPTS} compare-and-set races')

    def _groups_of(
        self, target: Target, patches: Sequence[Patch], versions: Mapping[int, Version]
    ) -> tuple[list[Patch], dict[str, Row]]:
        """The patches of groups that patches of contributions make, and the contributions.

        Groups are written first: a contribution says that its groups have it. If they do not all have it yet, because
        of a crash, the same patches are made again, and the guards of groups skip those that they have.
        """
        retraction = target.view.layout.retraction
        if retraction is None:
            return [], {}
        read: dict[str, Row] = {}
        for group in self._groups.of(target, by_key(patches)):
            read |= self._read_rows(target, list(group), versions)
        return retraction.patches(patches, {key: state for key, (state, *_) in read.items()}), read

    def _write_rows(
        self,
        target: Target,
        patches: dict[str, list[Patch]],
        versions: Mapping[int, Version],
        read: Mapping[str, Row],
    ) -> None:
        """Write the rows that patches change. read: rows as they were read before; they are changed here."""
        form, layout, clear = DocumentForm.of(target.view), target.view.layout, self._clear(target)
        for _ in range(ATTEMPTS):
            is_read = patches.keys() <= read.keys()
            found = {key: read[key] for key in patches} if is_read else self._read_rows(target, list(patches), versions)
            read = {}  # if one has changed since, it is read again
            self._fault("rows read")
            changed: dict[str, Row] = {}
            for key, (state, guard, version) in found.items():
                if new := take_new_patches(guard, patches[key]):
                    with ledgers.loadable(NAME):
                        for patch in new:
                            layout.combine(state, patch.fields)
                    changed[key] = state, guard, version
            written, operations = list(changed), list[bytes]()
            with ledgers.loadable(NAME):
                in_clear = clear.of_states([state for state, *_ in changed.values()])
                for (key, (state, guard, version)), shown in zip(changed.items(), in_clear, strict=True):
                    head = create_row(key) if version is None else index_row(key, version)
                    operations += [head, document(form, key, state, guard, shown)]
            if not operations:
                return
            self._groups.note(target, len(written), sum(map(len, operations)))
            outcomes = send(self._client, self._index(target), operations)
            # written rows are not read again, because their guards would skip the patches
            patches = {key: patches[key] for key, status in zip(written, outcomes, strict=True) if status == CONFLICT}
            if not patches:
                return
        raise StoreUnavailable(NAME, f'document "{next(iter(patches))}" lost {ATTEMPTS} compare-and-set races')

    def _read_rows(self, target: Target, keys: Sequence[str], versions: Mapping[int, Version]) -> dict[str, Row]:
        """The rows of these keys; raises LedgerChanged if a ledger has another version than this process knows."""
        requests = self._ledgers.version_requests(target, versions)
        requests += [{"_index": self._index(target), "_id": document_id(key)} for key in keys]
        with translated():
            found = documents(self._client.mget(docs=requests).body)
        for version, each in zip(versions.values(), found, strict=False):
            if not each["found"] or version_of(each) != version:
                raise LedgerChanged
        rows: dict[str, Row] = {}
        for key, each in zip(keys, found[len(versions) :], strict=True):
            if each["found"]:
                source = each["_source"]
                state = state_of(target.view, source)
                rows[key] = (state, places_from_json(source.get(GUARD)), version_of(each))
            else:
                rows[key] = ({}, {}, None)
        return rows

    @property
    def _client(self) -> Elasticsearch:
        if self._opened is None:
            self._opened = Elasticsearch(self._settings.elasticsearch, request_timeout=ANSWER_S, max_retries=0)
        return self._opened

    def _index(self, target: Target) -> str:
        return index_name(self._settings.environment, *target.id)
