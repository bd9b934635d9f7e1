from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from fastapi import FastAPI

from headwater.api.app import create_app
from headwater.api.routes import health
from headwater.eventlog.personal.memory import MemoryKeys
from tests.support.audited import MemoryTrail
from tests.support.memory_vault import memory_vault
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader, fake_service


@cache
def shared() -> tuple[FakeService, FastAPI]:
    """A service, and its app: to make an app takes ten times as long as to answer a request."""
    service = fake_service()
    return service, create_app(service)


@pytest.fixture
def service() -> Iterator[FakeService]:
    """The service of the shared app, with new parts."""
    made, _ = shared()
    for reader in made.readers.values():
        vars(reader).update(vars(MemoryReader(reader.name)))
    parts = vars(fake_service(readers=made.readers))
    vars(made).clear()
    vars(made).update(parts)
    yield made
    # an app remembers which stores failed, and which views were made
    if any(reader.failed for reader in made.readers.values()) or made.generations.made_views:
        shared.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def no_shared_readiness() -> Iterator[None]:
    """Tests change what an app finds, and ask again at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(health, "LOOK_S", 0.0)
        yield


@pytest.fixture(autouse=True)
def no_other_audit_log(audit_log: MemoryTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_log.stored.clear()
    audit_log.fails.clear()
    monkeypatch.setattr("headwater.api.routes.persons.Trail", audit_log)


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    """The keys of persons, in memory."""
    with memory_vault() as found:
        yield found


@pytest.fixture
def client(service: FakeService) -> AppClient:
    made, app = shared()
    return AppClient(app if made is service else create_app(service))


def listing(key: str, **columns: Any) -> dict[str, Any]:
    names = fake_service().views["listings"].types
    return {name: columns.get(name) for name in names} | {"listing_id": key}


@pytest.fixture
def stored(service: FakeService) -> MemoryReader:
    reader = service.readers["postgres"]
    rows = [
        listing("L1", city="GALT", price=3, listed_at="2026-01-01T00:00:00.000Z"),
        listing("L2", city="GALT", price=1, listed_at="2026-01-02T00:00:00.000Z"),
        listing("L3", city="ELK GROVE", price=3),
        listing("L4", city="LODI"),
        listing("a/b ü", city="LODI", price=2),
    ]
    reader.rows["listings"] = {row["listing_id"]: row for row in rows}
    return reader
