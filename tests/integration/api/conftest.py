"""A deployment of its own on real servers: the stack that runs, or else one started for these tests."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator

import httpx
import psycopg
import pytest
import valkey
from api_deployment import Deployment, answers, eventually, free_port, is_ready, stop
from elasticsearch import Elasticsearch

from compose.settings import Endpoints, Ports, StackSettings
from compose.stack import Stack
from eventlog import admin


@pytest.fixture(scope="session")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    running = StackSettings.from_environ(os.environ)
    ports = running.ports
    if all(map(answers, (ports.kafka, ports.postgres, ports.elasticsearch, ports.valkey))):
        yield running.endpoints
        return
    own = Ports(*(free_port() for _ in range(6)))
    with Stack(StackSettings(tmp_path_factory.mktemp("stack"), own)) as stack:
        yield stack.endpoints


@pytest.fixture(scope="module")
def deployment(endpoints: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    name = f"t_api_{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp(name)
    made = Deployment(endpoints.environment() | {"HEADWATER_ENVIRONMENT": name, "HEADWATER_STATE": str(folder)}, folder)
    admin.prepare(made.log)
    yield made
    admin.remove(made.log)
    with psycopg.connect(endpoints.postgres, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
    with Elasticsearch(endpoints.elasticsearch) as client:
        for index in client.indices.get(index=f"{name}.*"):
            client.indices.delete(index=index)
    with valkey.Valkey.from_url(endpoints.valkey) as cache:
        for key in cache.scan_iter(f"{name}:*", count=1000):
            cache.delete(key)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def api(deployment: Deployment) -> Iterator[httpx.Client]:
    """A client of `python -m api`, once it is ready."""
    port = free_port()
    process = deployment.start("api", HEADWATER_API_PORT=str(port), HEADWATER_ANSWER_TIMEOUT_S="3")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        try:
            eventually(lambda: process.poll() is not None or is_ready(client), "the API is ready")
            assert process.poll() is None, (deployment.folder / "api.log").read_text()
            yield client
        finally:
            stop(process)
