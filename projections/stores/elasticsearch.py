"""Views as Elasticsearch indexes: each document carries its guard and is written by compare-and-set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from elasticsearch import ApiError, Elasticsearch, NotFoundError

from projections.errors import GenerationMissing, StoreUnavailable
from projections.monoids import State
from projections.reference import combine
from projections.settings import StoreSettings
from projections.stores import ledgers
from projections.stores.documents import DocumentForm, Guard, by_key, guard_from_json, take_unguarded
from projections.stores.elasticsearch_bulk import (
    CONFLICT,
    NAME,
    ElasticsearchWriter,
    IndexGone,
    create_row,
    document,
    index_row,
    send,
    translated,
)
from projections.stores.elasticsearch_mapping import (
    BULK_SETTINGS,
    GUARD,
    LEDGER_MAPPING,
    LEDGER_SETTINGS,
    LIVE_SETTINGS,
    STATE,
    mapping,
)
from projections.stores.names import alias_name, document_id, index_name, ledger_document, ledger_index, write_alias
from projections.stores.store import Batch, BulkWriter, Ledger, Patch, Target, no_fault

ATTEMPTS: Final = 20
"""How often a document is read again because another writer was faster; there are hardly ever two writers."""
PROGRESS_INTERVAL_S: Final = 1.0


@dataclass(slots=True)
class _Held:
    """A ledger as this process knows it, and the version of its document. Never ahead of the rows."""

    ledger: Ledger
    version: tuple[int, int]
    """`_seq_no` and `_primary_term`."""
    dirty: bool = False
    written_at: float = float("-inf")


class ElasticsearchStore:
    """Views in one Elasticsearch; for one thread.

    Documents are written first, their ledger afterwards: a crash between the two applies patches again, and the guard
    in each document skips them. A ledger that only progress has advanced is written about once a second.

    fault: called with the name of each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "elasticsearch"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._fault = settings, fault
        self._opened: Elasticsearch | None = None
        self._held: dict[tuple[str, int], dict[int, _Held]] = {}

    def create(self, target: Target, base: Mapping[int, int], start: Mapping[int, int]) -> None:
        self.drop(target)
        with translated():
            if not self._client.indices.exists(index=self._ledger):
                self._create_ledger()
            self._client.indices.create(
                index=self._index(target),
                mappings=mapping(target.view),
                settings=dict(BULK_SETTINGS),
                aliases={write_alias(self._index(target)): {}},
            )
            for partition, offset in start.items():
                self._client.index(
                    index=self._ledger,
                    id=ledger_document(target.view.name, target.generation, partition),
                    document=_ledger_source(target, partition, ledgers.initial_ledger(base, offset)),
                )

    def bulk_writer(self, target: Target) -> BulkWriter:
        return ElasticsearchWriter(self._settings.elasticsearch, self._index(target), DocumentForm.of(target.view))

    def finish(self, target: Target) -> None:
        with translated():
            self._client.indices.put_settings(index=self._index(target), settings=dict(LIVE_SETTINGS))
            self._client.indices.flush(index=self._index(target))
            self._client.indices.refresh(index=self._index(target))

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
        self._held.pop(_name(target), None)
        with translated():
            self._client.indices.delete(index=self._index(target), ignore_unavailable=True)
            for found in self._read_ledgers(target):
                self._client.delete(index=self._ledger, id=found["_id"])

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        return {partition: deepcopy(held.ledger) for partition, held in self._look_up(target).items()}

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        wrote = False
        for target in targets:
            known = self._held.get(_name(target)) or self._look_up(target)
            ledgers.check(NAME, target, {partition: held.ledger for partition, held in known.items()}, batches)
            fresh: list[Patch] = []
            advanced: dict[int, Ledger] = {}
            for partition, batch in batches.items():
                advanced[partition] = deepcopy(known[partition].ledger)
                fresh += ledgers.take_new(advanced[partition], batch, target.view.tag)
            if fresh:
                self._write_rows(target, by_key(fresh))
                wrote = True
            for partition, ledger in advanced.items():
                known[partition].ledger, known[partition].dirty = ledger, True
        self._fault("rows written")
        self._write_ledgers(targets, at_once=wrote)
        self._fault("ledger written")

    def close(self) -> None:
        """Let go of the connection; progress that is not in a ledger yet is read again."""
        self._held.clear()
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _write_rows(self, target: Target, patches: dict[str, list[Patch]]) -> None:
        form = DocumentForm.of(target.view)
        for _ in range(ATTEMPTS):
            found = self._read_rows(target, list(patches))
            self._fault("rows read")
            written: list[str] = []
            operations: list[bytes] = []
            for key, (state, guard, version) in found.items():
                new = take_unguarded(guard, patches[key])
                if not new:
                    continue
                with ledgers.loadable(NAME):
                    for patch in new:
                        combine(target.view, state, patch.fields)
                    row = document(form, key, state, guard)
                written.append(key)
                operations += [create_row(key) if version is None else index_row(key, version), row]
            if not operations:
                return
            try:
                statuses = send(self._client, self._index(target), operations)
            except IndexGone as error:
                self._held.pop(_name(target), None)
                raise GenerationMissing(target.view.name, target.generation) from error
            # those that went through are read again too: their guards say so
            patches = {key: patches[key] for key, status in zip(written, statuses, strict=True) if status == CONFLICT}
            if not patches:
                return
        raise StoreUnavailable(NAME, f'document "{next(iter(patches))}" keeps changing under our hands')

    def _read_rows(self, target: Target, keys: Sequence[str]) -> dict[str, tuple[State, Guard, tuple[int, int] | None]]:
        with translated():
            answer = self._client.mget(index=self._index(target), ids=[document_id(key) for key in keys])
        kinds = {field.name for field in target.view.layout.fields}
        rows: dict[str, tuple[State, Guard, tuple[int, int] | None]] = {}
        for key, each in zip(keys, answer["docs"], strict=True):
            if "error" in each:
                if each["error"]["type"] == "index_not_found_exception":
                    self._held.pop(_name(target), None)
                    raise GenerationMissing(target.view.name, target.generation)
                raise StoreUnavailable(NAME, str(each["error"].get("reason")))
            if each["found"]:
                source = each["_source"]
                state = {name: source[name] for name in kinds if name in source} | source[STATE]
                rows[key] = (state, guard_from_json(source.get(GUARD)), (each["_seq_no"], each["_primary_term"]))
            else:
                rows[key] = ({}, {}, None)
        return rows

    def _write_ledgers(self, targets: Sequence[Target], at_once: bool) -> None:
        due = [
            (target, partition, held)
            for target in targets
            for partition, held in self._held[_name(target)].items()
            if held.dirty and (at_once or time.monotonic() - held.written_at > PROGRESS_INTERVAL_S)
        ]
        if not due:
            return
        operations: list[Any] = []
        for target, partition, held in due:
            name = ledger_document(target.view.name, target.generation, partition)
            operations += [index_row(name, held.version), _ledger_source(target, partition, held.ledger)]
        with translated():
            answer = self._client.bulk(index=write_alias(self._ledger), operations=operations, require_alias=True)
        for (target, partition, held), item in zip(due, answer["items"], strict=True):
            outcome = item["index"]
            if outcome["status"] < 300:
                held.version = (outcome["_seq_no"], outcome["_primary_term"])
                held.dirty, held.written_at = False, time.monotonic()
            elif outcome["status"] == CONFLICT:
                self._take_over(target)
            else:
                self._held.pop(_name(target), None)
                raise StoreUnavailable(NAME, f"ledger {partition} of {target.view.name}: {outcome.get('error')}")

    def _take_over(self, target: Target) -> None:
        """Another loader has written a ledger: of each the one further on is kept, and written with the next batch."""
        ours = self._held[_name(target)]
        for partition, theirs in self._look_up(target).items():
            if partition in ours and theirs.ledger.next < ours[partition].ledger.next:
                theirs.ledger, theirs.dirty = ours[partition].ledger, True

    def _look_up(self, target: Target) -> dict[int, _Held]:
        held = {}
        with translated():
            for each in self._read_ledgers(target):
                source = each["_source"]
                ledger = ledgers.from_json(source["next"], source["applied"])
                held[source["partition"]] = _Held(ledger, (each["_seq_no"], each["_primary_term"]))
        self._held[_name(target)] = held
        return held

    def _read_ledgers(self, target: Target) -> list[dict[str, Any]]:
        """The ledger documents of a generation that are there, for every partition that `patches` may have."""
        answer: Any = self._client.options(ignore_status=404).mget(
            index=self._ledger,
            ids=[
                ledger_document(target.view.name, target.generation, partition)
                for partition in range(self._settings.patch_partitions)
            ],
        )
        return [each for each in answer.get("docs", ()) if each.get("found")]

    def _create_ledger(self) -> None:
        try:
            self._client.indices.create(
                index=self._ledger,
                mappings=dict(LEDGER_MAPPING),
                settings=dict(LEDGER_SETTINGS),
                aliases={write_alias(self._ledger): {}},
            )
        except ApiError as error:
            if error.error != "resource_already_exists_exception":  # another process was faster
                raise

    @property
    def _client(self) -> Elasticsearch:
        if self._opened is None:
            self._opened = Elasticsearch(self._settings.elasticsearch, request_timeout=30, max_retries=0)
        return self._opened

    @property
    def _ledger(self) -> str:
        return ledger_index(self._settings.environment)

    def _index(self, target: Target) -> str:
        return index_name(self._settings.environment, target.view.name, target.generation)


def _name(target: Target) -> tuple[str, int]:
    return target.view.name, target.generation


def _ledger_source(target: Target, partition: int, ledger: Ledger) -> dict[str, Any]:
    return {
        "view": target.view.name,
        "generation": target.generation,
        "partition": partition,
        "next": ledger.next,
        "applied": ledgers.to_json(ledger),
    }
