"""A deployment of its own on real servers, removed afterwards, and its API."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence

import httpx
import pytest

from headwater.compose.settings import StackSettings
from headwater.eventlog.kafka import admin
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey
from tests.integration.api.api_deployment import Deployment, serving
from tests.support.domains import SHIPPED


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    """What the deployment declares."""
    return SHIPPED


@pytest.fixture(scope="module")
def deployment(
    stack: StackSettings, tmp_path_factory: pytest.TempPathFactory, modules: Sequence[str]
) -> Iterator[Deployment]:
    name, endpoints = f"t_api_{uuid.uuid4().hex[:8]}", stack.endpoints
    folder = tmp_path_factory.mktemp(name)
    variables = {"HEADWATER_ENVIRONMENT": name, "HEADWATER_STATE": str(folder), "HEADWATER_MODULES": ",".join(modules)}
    made = Deployment(endpoints.environment() | variables, folder)
    admin.prepare(made.log)
    with OnPostgres(made.stores), OnElasticsearch(made.stores), OnValkey(made.stores):
        yield made
    admin.remove(made.log)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def variables() -> Mapping[str, str]:
    """Of the API, beside those of the deployment; a test module may have others."""
    return {}


@pytest.fixture(scope="module")
def api(deployment: Deployment, variables: Mapping[str, str]) -> Iterator[httpx.Client]:
    """A client of `headwater api`, once it is ready."""
    with serving(deployment, **variables) as client:
        yield client
