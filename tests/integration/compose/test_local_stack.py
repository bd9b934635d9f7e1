"""The local stack on ports of its own: up, crash, restart, down and up again, and a supervisor that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import psycopg
import pytest
import valkey
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from elasticsearch import Elasticsearch

from compose.ports import free_ports
from compose.settings import Endpoints, Ports, StackSettings
from compose.stack import Stack
from projections.supervision.process import State
from tests.shared_stack import own_folder

PARTS = ("kafka", "postgres", "elasticsearch", "valkey")


def write_everywhere(endpoints: Endpoints) -> None:
    admin = AdminClient({"bootstrap.servers": endpoints.kafka})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result()
    producer = Producer({"bootstrap.servers": endpoints.kafka, "acks": "all"})
    producer.produce("kept", b"value")
    assert producer.flush(10) == 0
    with psycopg.connect(endpoints.postgres) as connection:
        connection.execute("create table kept as select 'value' as value")
    with Elasticsearch(endpoints.elasticsearch) as client:
        client.index(index="kept", id="1", document={"value": "value"})
    with valkey.Valkey.from_url(endpoints.valkey) as client:
        client.set("kept", "value")
        client.execute_command("WAITAOF", 1, 0, 5000)  # or a crash may lose what is not a second old


def read_kafka(endpoints: Endpoints) -> str:
    consumer = Consumer({"bootstrap.servers": endpoints.kafka, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("kept", 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        return (message.value() or b"").decode()
    finally:
        consumer.close()


def read_postgres(endpoints: Endpoints) -> str:
    with psycopg.connect(endpoints.postgres) as connection:
        return str(connection.execute("select value from kept").fetchall()[0][0])


def read_elasticsearch(endpoints: Endpoints) -> str:
    with Elasticsearch(endpoints.elasticsearch) as client:
        return str(client.get(index="kept", id="1")["_source"]["value"])


def read_valkey(endpoints: Endpoints) -> str:
    with valkey.Valkey.from_url(endpoints.valkey, decode_responses=True) as client:
        return str(client.get("kept"))


READERS = {
    "kafka": read_kafka,
    "postgres": read_postgres,
    "elasticsearch": read_elasticsearch,
    "valkey": read_valkey,
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with own_folder() as folder, Stack(StackSettings(folder, free_ports())) as running:
        write_everywhere(running.endpoints)
        yield running


def test_all_servers_are_healthy_and_hold_data(stack: Stack) -> None:
    assert {one.name: one.state for one in stack.status()} == dict.fromkeys(PARTS, State.HEALTHY)
    for read in READERS.values():
        assert read(stack.endpoints) == "value"


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_server_comes_back_with_its_data(stack: Stack, part: str) -> None:
    before = {one.name: one.pid for one in stack.status()}
    stack.kill(part)
    stack.wait_healthy(part)
    after = {one.name: one.pid for one in stack.status()}
    assert {name for name in PARTS if before[name] != after[name]} == {part}
    assert READERS[part](stack.endpoints) == "value"


def test_data_survives_down_and_up(stack: Stack) -> None:
    stack.stop()
    assert stack.status() == []
    stack.start()
    for read in READERS.values():
        assert read(stack.endpoints) == "value"


def test_postgres_is_ready_for_logical_replication(stack: Stack) -> None:
    with psycopg.connect(stack.endpoints.postgres) as connection:
        assert connection.execute("show wal_level").fetchone() == ("logical",)


@pytest.fixture
def compose() -> Iterator[Compose]:
    """The command line on a state directory and ports of its own, stopped at the end whatever happened."""
    environ = {Ports.variable(name): str(port) for name, port in asdict(free_ports()).items()}
    with own_folder() as folder:
        command_line = Compose(os.environ | environ | {"HEADWATER_STATE": str(folder)}, folder)
        yield command_line
        command_line("down")


class Compose:
    def __init__(self, environ: dict[str, str], state: Path) -> None:
        self.environ, self.state = environ, state

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "compose", *words]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=600, check=False)

    def processes(self) -> list[psutil.Process]:
        """The supervisor's whole family: guards, servers and what these started."""
        owner = json.loads((self.state / "stack.json").read_text())["owner"]
        return list(psutil.Process(owner).children(recursive=True))


def test_a_killed_supervisor_leaves_no_orphans_and_the_next_one_starts(compose: Compose) -> None:
    up = compose("up", "--detach")
    assert up.returncode == 0, up.stderr
    assert f"HEADWATER_VALKEY=valkey://127.0.0.1:{compose.environ['HEADWATER_VALKEY_PORT']}" in up.stdout
    status = compose("status", "--json")
    assert status.returncode == 0
    assert {one["name"]: one["state"] for one in json.loads(status.stdout)} == dict.fromkeys(PARTS, "healthy")
    again = compose("up")
    assert again.returncode == 0
    assert "already running" in again.stdout

    family = compose.processes()
    assert len(family) > 2 * len(PARTS)
    os.kill(json.loads((compose.state / "stack.json").read_text())["owner"], signal.SIGKILL)
    assert compose("status").returncode == 1
    restarted = compose("up", "--detach")  # at once, while the guards are still stopping the old servers
    assert restarted.returncode == 0, restarted.stderr
    assert not psutil.wait_procs(family, timeout=0)[1]
    down = compose("down")
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    assert compose("status").returncode == 1
    assert "no stack is running" in compose("down").stderr


def test_a_taken_port_is_reported_at_once(compose: Compose) -> None:
    with socket.create_server(("127.0.0.1", int(compose.environ["HEADWATER_POSTGRES_PORT"]))):
        up = compose("up", "--detach")
    assert up.returncode == 1
    assert f"error: port {compose.environ['HEADWATER_POSTGRES_PORT']} for 'postgres' is in use" in up.stderr
    assert "HEADWATER_POSTGRES_PORT" in up.stderr
    assert compose("logs", "nothing").returncode == 1
