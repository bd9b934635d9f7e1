from __future__ import annotations

import pytest
from asgi_client import AppClient
from fake_service import fake_service

from api.app import create_app
from api.service import Service


@pytest.fixture
def service() -> Service:
    return fake_service()


@pytest.fixture
def client(service: Service) -> AppClient:
    return AppClient(create_app(service))
