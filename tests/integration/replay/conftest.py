"""A fresh deployment on the running servers, removed afterwards."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.settings import StackSettings
from eventlog.kafka import admin
from eventlog.kafka import log as kafka
from eventlog.kafka.log import KafkaLog
from eventlog.settings import LogSettings
from projections.settings import StoreSettings
from replay import cli
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey
from tests.integration.replay.deployed import BOUND_S, Command, Deployed, Told
from tests.support.ordered_producer import ordered_producer
from tests.support.patience import patient
from tests.support.spark_rows import session


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    with patient():
        yield


@pytest.fixture
def modules() -> tuple[str, ...]:
    """The packages of the deployment's views; a test module may have others."""
    return ("listings", "tests.integration.replay.things")


@pytest.fixture
def deployed(
    stack: StackSettings, tmp_path: Path, modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployed]:
    # nobody waits for an answer to what is appended and read here: a busy broker may take its time
    monkeypatch.setattr(kafka, "SUBMIT_TIMEOUT_MS", int(BOUND_S * 1000))
    monkeypatch.setattr(kafka, "TIMEOUT_S", BOUND_S)
    monkeypatch.setattr(kafka, "FAILOVER_S", BOUND_S)
    at, name = stack.endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = LogSettings(name, at.kafka, 2, 2, state=tmp_path, modules=modules)
    stores = StoreSettings(name, at.postgres, at.elasticsearch, at.valkey, settings.patch_partitions, log=settings)
    admin.prepare(settings)
    log = KafkaLog(settings)
    producer = ordered_producer(settings.bootstrap, **{"linger.ms": 5})
    with OnPostgres(stores) as postgres, OnElasticsearch(stores) as elasticsearch, OnValkey(stores) as valkey:
        servers = {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey}
        yield Deployed(settings, stores, servers, log, producer)
    log.close()
    admin.remove(settings)


@pytest.fixture
def replay(local_replay: Command) -> Command:
    """Runs `replay` with `--json` in this process, whose Spark session it shares."""
    session()
    return local_replay


@pytest.fixture
def local_replay(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Likewise, without a session: a small log needs none."""
    for name, value in deployed.variables.items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> Told:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["replay", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capsys.readouterr()
        code = ended.value.code
        return Told(code if isinstance(code, int) else 0, json.loads(output.out) if output.out else None, output.err)

    return run
