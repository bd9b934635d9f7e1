from __future__ import annotations

from typing import Any

import pytest

from api.app import create_app
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import FakeService, MemoryReader, fake_service


@pytest.fixture
def service() -> FakeService:
    return fake_service()


@pytest.fixture
def client(service: FakeService) -> AppClient:
    return AppClient(create_app(service))


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
