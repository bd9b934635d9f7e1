"""`make bench`: which benches there are, which servers they use, and what is printed of what was measured."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.compose.ports import free_ports
from headwater.compose.settings import Ports, StackSettings
from tests.bench import __main__ as bench
from tests.bench import _servers
from tests.bench._machine import ROOT
from tests.bench._report import conditions, result

MACHINE = {
    "cores": 2, "memory_gb": 25, "python": "3.11.7", "commit": "8f77cecf4f6b+", "stack": "own", "loop_s": 0.88,
    "load": [1.5, 0.25], "others": {"java": 0.52},
}  # fmt: skip


@pytest.fixture
def listening() -> Iterator[dict[str, str]]:
    """Four servers that accept connections, by the variable that names them."""
    with ExitStack() as opened:
        ports = [opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(4)]
        kafka, postgres, elasticsearch, valkey = ports
        yield {
            "HEADWATER_KAFKA": f"127.0.0.1:{kafka},127.0.0.1:{kafka}",
            "HEADWATER_POSTGRES": f"postgresql://headwater:p%40ss@127.0.0.1:{postgres}/headwater?sslmode=disable",
            "HEADWATER_ELASTICSEARCH": f"http://127.0.0.1:{elasticsearch}",
            "HEADWATER_VALKEY": f"valkey://127.0.0.1:{valkey}",
        }


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[Ports]:
    """The ports of the stacks that were started; none really is."""
    started: list[Ports] = []

    class Stack:
        def __init__(self, settings: StackSettings) -> None:
            self.endpoints = settings.endpoints
            self._ports = settings.ports

        def __enter__(self) -> Stack:
            started.append(self._ports)
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(_servers, "Stack", Stack)
    return started


def free_port_variables() -> dict[str, str]:
    """Variables of a stack on ports at which nothing listens."""
    ports = free_ports()
    return {
        Ports.variable(name): str(getattr(ports, name)) for name in ("kafka", "postgres", "elasticsearch", "valkey")
    }


def test_a_name_that_is_none_is_answered_with_those_that_are(
    capsys: pytest.CaptureFixture[str], own: list[Ports]
) -> None:
    assert bench.main(["freshness", "typo"]) == 2
    out, err = capsys.readouterr()
    assert (out, own) == ("", [])
    told, *names = err.splitlines()
    assert told == 'there is no bench "typo"; there are:'
    assert {"  freshness", "  commands", "  replay_postgres"} <= set(names)


def test_the_benchmarks_that_the_docs_show_exist() -> None:
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/performance.md")]
    rows = [row for page in pages for row in re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+)(?::| at )", page, re.MULTILINE)]
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert {"freshness", "replay_cache"} <= named <= bench.benches().keys()


def test_servers_that_run_are_used(
    listening: dict[str, str], own: list[Ports], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(listening))
    with _servers.servers() as stack:
        assert (stack, own, dict(os.environ)) == ("running", [], listening)


def test_without_servers_its_own_are_started_and_all_processes_led_there(
    own: list[Ports], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", free_port_variables())
    with _servers.servers() as stack:
        (ports,) = own
        assert stack == "own"
        assert os.environ["HEADWATER_KAFKA"] == f"127.0.0.1:{ports.kafka}"
        assert f":{ports.postgres}/" in os.environ["HEADWATER_POSTGRES"]
        assert {"HEADWATER_ELASTICSEARCH", "HEADWATER_VALKEY"} <= os.environ.keys()


def test_a_server_that_is_named_and_away_is_no_reason_to_measure_another(
    listening: dict[str, str],
    own: list[Ports],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listening["HEADWATER_KAFKA"] += f",127.0.0.1:{free_port_variables()['HEADWATER_KAFKA_PORT']}"
    monkeypatch.setattr(os, "environ", listening)
    monkeypatch.setattr(bench, "benches", lambda: {"quick": None})
    assert bench.main([]) == 1
    assert own == []
    assert f"nothing answers at HEADWATER_KAFKA={listening['HEADWATER_KAFKA']}" in capsys.readouterr().err


def test_programs_read_a_json_line_and_people_plain_words(
    own: list[Ports], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, Any]] = [{"value": 1_234, "unit": "events/s", "conditions": "ten rows"}]
    monkeypatch.setattr(os, "environ", {**os.environ, **free_port_variables()})
    monkeypatch.setattr(bench, "benches", lambda: {"quick": SimpleNamespace(run=lambda _: iter(lines))})
    assert bench.main([]) == 0
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    document = json.loads(line)
    found = document.pop("machine")
    assert document == {"bench": "quick", **lines[0]}
    assert found["cores"] == os.cpu_count()
    assert (found["stack"], found.keys()) == ("own", MACHINE.keys())
    assert "quick: 1,234 events/s\n    ten rows\n" in err


def test_plain_words() -> None:
    assert conditions(MACHINE) == (
        "2 cores, 25 GB, Python 3.11.7, commit 8f77cecf4f6b+, servers: own, ten million additions take 0.88 s\n"
        "load average 1.50 (0.25 over 5 minutes); beside it: java 0.52 cores"
    )
    replay = {"value": 247_000, "unit": "events/s", "floor": 188_000, "ratio": 1.31, "all": [240_000, 247_000, 250_100]}
    assert result("replay_postgres", {**replay, "conditions": "2000000 events"}) == (
        "replay_postgres: 247,000 events/s; by hand 188,000 events/s, ratio 1.31; "
        "median of 240,000, 247,000, 250,100\n    2000000 events"
    )
    assert result("freshness", {"value": 10.25, "unit": "ms (p50)", "p99_ms": 20.5}) == (
        "freshness: 10.25 ms (p50); 20.5 ms (p99)"
    )
