"""The processes of `make run`: which there are, and with which settings."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headwater.compose.run import environment_of, watched_sources
from headwater.compose.samples.sample import open_http
from headwater.compose.services import API_INSTANCE, ready, service_specs, wait_for_views
from headwater.compose.settings import StackSettings
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.settings import LogSettings
from tests.support.served import served
from tests.support.waiting import BOUND_S

SETTINGS = StackSettings(Path("/home/ada/.headwater"))
OWN = """
from headwater.eventlog.capturing import Captured, Source

class Client(Captured, table="public.clients", key="id"):
    id: int

crm = Source(name="crm", tables=(Client,))
"""


def test_connectors_of_sources_are_watched() -> None:
    environment = environment_of(SETTINGS, ("listings", "shop"), {})
    output = StringIO()
    watched = watched_sources(("listings", "shop"), environment, Console(file=output))
    *others, watch = service_specs(SETTINGS, 18080, environment, watched)
    assert [other.name for other in others] == ["commands", "projections", "api"]
    assert watch.argv[1:] == ("-P", "-m", "headwater.eventlog.capturing", "watch", "shop")
    (source,) = SourceRegistry.load(("shop",)).sources.values()
    settings = SourceSettings.from_environment(source, watch.env)
    assert isinstance(settings.database, PostgresAddress)
    assert (settings.connect, settings.database.database) == (SETTINGS.endpoints.connect, "shop")
    assert output.getvalue() == ""


def test_without_sources_nothing_is_watched() -> None:
    environment = environment_of(SETTINGS, ("listings",), {})
    watched = watched_sources(("listings",), environment, Console(file=StringIO()))
    assert [spec.name for spec in service_specs(SETTINGS, 18080, environment, watched)] == [
        "commands",
        "projections",
        "api",
    ]


def test_the_salt_of_the_user_is_kept() -> None:
    assert environment_of(SETTINGS, ("shop",), {})["HEADWATER_SHOP_SALT"] == "local"
    assert "HEADWATER_SHOP_SALT" not in environment_of(SETTINGS, ("shop",), {"HEADWATER_SHOP_SALT": "mine"})


def test_a_source_without_settings_is_named_and_does_not_end_the_watch_over_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crm_of_ada.py").write_text(OWN)
    modules, output = ("shop", "crm_of_ada"), StringIO()
    environment = environment_of(SETTINGS, modules, {})
    assert watched_sources(modules, environment, Console(file=output, width=40)) == ["shop"]
    assert output.getvalue().startswith('connectors of source "crm" are not watched: environment variable "HEADWATER_')
    given = {**environment, "HEADWATER_CRM_DATABASE": "postgresql://reader@db/crm"}
    assert watched_sources(modules, given, Console(file=output)) == ["shop", "crm"]


def test_the_name_of_the_environment_is_known_wherever_it_is_compared() -> None:
    environment = environment_of(SETTINGS, ("listings",), {"HEADWATER_ENVIRONMENT": "trial"})
    assert {spec.env["HEADWATER_ENVIRONMENT"] for spec in service_specs(SETTINGS, 18080, environment)} == {"trial"}
    assert environment_of(SETTINGS, ("listings",), {})["HEADWATER_ENVIRONMENT"] == "headwater"


def test_another_kafka_of_the_user_has_no_part_in_the_stack() -> None:
    given = {
        "HEADWATER_KAFKA_SECURITY": "SASL_SSL",
        "HEADWATER_KAFKA_USER": "ada",
        "HEADWATER_KAFKA_PASSWORD": "secret",
        "HEADWATER_KAFKA": "production:9092",
    }
    log = LogSettings.from_environment(given | environment_of(SETTINGS, ("listings",), given))
    assert (log.bootstrap, log.security.protocol) == (SETTINGS.endpoints.kafka, "PLAINTEXT")


@contextmanager
def answering(status: int, document: object) -> Iterator[str]:
    """The address of a server that gives this answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with served(Handler) as url:
        yield url


READY = {"status": "ready", "parts": {}}


@pytest.mark.parametrize(
    ("status", "document", "problem"),
    [
        (200, {**READY, "environment": "mine", "instance": "1a"}, None),
        (200, READY, None),
        (200, [], None),
        (200, {**READY, "environment": "other", "instance": "1a"}, 'another API answers at .*environment is "other"'),
        (200, {**READY, "environment": "mine", "instance": "2b"}, 'another API answers at .*instance is "2b"'),
        (503, {**READY, "environment": "mine", "instance": "1a"}, "not ready: "),
        (503, {**READY, "environment": "mine", "instance": "2b"}, "another API"),
    ],
)
def test_only_the_api_that_was_started_is_taken_for_ready(status: int, document: object, problem: str | None) -> None:
    with answering(status, document) as url:
        found = ready(url, "mine", "1a")
    assert (found is None) == (problem is None)
    assert problem is None or re.match(problem, str(found))


def test_each_start_of_the_api_has_a_name_that_its_readiness_is_compared_with() -> None:
    environment = environment_of(SETTINGS, ("listings",), {})
    names = {
        spec.env.get(API_INSTANCE)
        for _ in range(2)
        for spec in service_specs(SETTINGS, 18080, environment)
        if spec.name == "api"
    }
    assert len(names) == 2
    assert None not in names


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_is_not_asked_for_what_is_on_this_machine(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with answering(502, {}) as wrong, answering(200, {**READY, "views": []}) as url:
        monkeypatch.setenv(proxy, wrong)
        assert ready(url, "mine", "1a") is None
        wait_for_views(url, BOUND_S)

        async def sample() -> int:
            async with open_http(url) as http:
                return (await http.get("/")).status_code

        assert asyncio.run(sample()) == 200
        connect = KafkaConnect(url, retry_s=0)
        assert connect._http.get("/").status_code == 200
        connect.close()
