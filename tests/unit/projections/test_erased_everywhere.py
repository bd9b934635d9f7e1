"""An erasure looks at every store that has a generation, whatever the code declares by now."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import psycopg
import pytest

from headwater.eventlog.personal.memory import MemoryKeys
from headwater.projections.erase_person import in_clear
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import erasing
from headwater.projections.stores.backend import ClearGeneration
from headwater.projections.stores.erasing import ClearErasure


class Rows:
    """Rows of a store with one generation that is kept; emptied: the keys whose values were taken out."""

    def __init__(self) -> None:
        self.emptied: list[str] = []

    def generations(self) -> Sequence[ClearGeneration]:
        return [ClearGeneration("customers", 1, ("email",), 0)]

    def count(self, _of: ClearGeneration, key_ids: Collection[str]) -> int:
        return len(key_ids)

    def empty(self, _of: ClearGeneration, key_ids: Collection[str]) -> int:
        self.emptied += key_ids
        return len(key_ids)

    def note_erased(self, _of: ClearGeneration, _number: int) -> None: ...


def test_a_store_that_a_new_version_has_dropped_is_emptied_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made, keys = Rows(), MemoryKeys()
    found = {"elasticsearch": made}

    class Backend:
        def __init__(self, name: str) -> None:
            self.clear_rows = (lambda _: found[name]) if name in found else None

    monkeypatch.setattr(erasing, "backend", Backend)
    # the registry has a kept generation in Elasticsearch, and the view is in Valkey now
    erasure = ClearErasure(StoreSettings(), lambda: {"valkey", "elasticsearch", "gone"}, wait=lambda _: None)
    key = keys.key_of("C1").key_id
    assert [(counted.store, counted.rows) for counted in erasure.count([key])] == [("elasticsearch", 1)]
    keys.erase("C1")
    assert [(counted.store, counted.rows) for counted in erasure.empty([key])] == [("elasticsearch", 1)]
    assert erasure.sweep(keys) == 1
    assert made.emptied == [key, key]


def test_a_registry_that_is_away_is_named_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    def away() -> Collection[str]:
        raise StoreUnavailable("PostgreSQL", "it is away")

    erasure = ClearErasure(StoreSettings(), away, wait=lambda _: None)
    (found,) = erasure.empty(["a"])
    assert "it is away" in found.problem
    assert erasure.sweep(MemoryKeys()) == 0
    assert "it is away" in caplog.text


def test_the_command_needs_no_modules_and_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_MODULES", raising=False)

    def missing(_: Generations) -> list[Generation]:
        raise psycopg.errors.UndefinedTable

    monkeypatch.setattr(Generations, "all", missing)
    assert in_clear().count(["a"]) == []
