"""The local stack on ports of its own: up, crash, restart, down and up again, and a supervisor that is killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import valkey
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headwater.compose.ports import free_ports
from headwater.compose.settings import Endpoints, Ports, StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.projections.supervision.process import State
from tests.support.elasticsearch_client import elasticsearch
from tests.support.ordered_producer import ordered_producer, stored
from tests.support.seeds import some_of
from tests.support.waiting import eventually

PARTS = ("kafka", "postgres", "elasticsearch", "valkey")
KILLED = 2
"""Servers; in a long run all of them."""


def write_everywhere(endpoints: Endpoints) -> None:
    admin = AdminClient({"bootstrap.servers": endpoints.kafka})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result()
    producer = ordered_producer(endpoints.kafka)
    producer.produce("kept", b"value")
    stored(producer)
    with psycopg.connect(endpoints.postgres) as connection:
        connection.execute("create table kept as select 'value' as value")
    with elasticsearch(endpoints.elasticsearch) as client:
        client.index(index="kept", id="1", document={"value": "value"})
    with valkey.Valkey.from_url(endpoints.valkey) as client:
        client.set("kept", "value")
        client.execute_command("WAITAOF", 1, 0, 5000)  # or a crash may lose what is not a second old


def read_kafka(endpoints: Endpoints) -> str:
    consumer = Consumer({"bootstrap.servers": endpoints.kafka, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("kept", 0, 0)])

        def read() -> Message | None:  # a broker that has just started may not know the topic yet
            message = consumer.poll(1)
            return None if message is None or message.error() is not None else message

        message = eventually(read, "the record is read")
        assert message is not None
        return (message.value() or b"").decode()
    finally:
        consumer.close()


def read_postgres(endpoints: Endpoints) -> str:
    with psycopg.connect(endpoints.postgres) as connection:
        return str(connection.execute("select value from kept").fetchall()[0][0])


def read_elasticsearch(endpoints: Endpoints) -> str:
    with elasticsearch(endpoints.elasticsearch) as client:
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


@pytest.mark.complete
def test_all_servers_are_healthy_and_hold_data(stack: Stack) -> None:
    healthy = dict.fromkeys(PARTS, State.HEALTHY)
    # one that answers late on a busy machine is unhealthy until it is asked again
    eventually(lambda: {one.name: one.state for one in stack.status()} == healthy, "all are healthy at the same time")
    for read in READERS.values():
        assert read(stack.endpoints) == "value"


def killed() -> list[pytest.ParameterSet]:
    """The first one decides."""
    first, *others = some_of(PARTS, KILLED, 6)
    return [pytest.param(first), *(pytest.param(other, marks=pytest.mark.complete) for other in others)]


@pytest.mark.complete
@pytest.mark.soak
@pytest.mark.parametrize("part", killed())
def test_a_killed_server_comes_back_with_its_data(stack: Stack, part: str) -> None:
    before = {one.name: one.pid for one in stack.status()}
    stack[part].kill()
    stack[part].wait_healthy()
    after = {one.name: one.pid for one in stack.status()}
    assert {name for name in PARTS if before[name] != after[name]} == {part}
    assert READERS[part](stack.endpoints) == "value"


@pytest.mark.complete
def test_postgres_is_ready_for_logical_replication(stack: Stack) -> None:
    with psycopg.connect(stack.endpoints.postgres) as connection:
        assert connection.execute("show wal_level").fetchone() == ("logical",)


class Compose:
    """The command line on a state directory and ports."""

    def __init__(self, settings: StackSettings) -> None:
        self.ports = {Ports.variable(name): str(port) for name, port in settings.ports.model_dump().items()}
        self.state = settings.state

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, environ = [sys.executable, "-m", "headwater.compose", *words], {"HEADWATER_STATE": str(self.state)}
        return subprocess.run(
            command, env=os.environ | self.ports | environ, capture_output=True, text=True, timeout=700, check=False
        )

    def states(self) -> dict[str, str]:
        """By name of each server, its state."""
        status = self("status", "--json")
        assert status.returncode == 0, status.stderr
        return {one["name"]: one["state"] for one in json.loads(status.stdout)}

    @property
    def supervisor(self) -> psutil.Process:
        """It has a whole family: guards, servers and what these started."""
        return psutil.Process(json.loads((self.state / "stack.json").read_text())["owner"])


@pytest.fixture
def compose(stack: Stack) -> Iterator[Compose]:
    """The command line on the data of the stack, which is stopped; at the end all is stopped, whatever happened."""
    stack.stop()
    assert stack.status() == []
    yield (command_line := Compose(stack.settings))
    command_line("down")


@pytest.mark.complete
def test_data_survives_down_and_up_and_a_supervisor_that_is_killed_which_leaves_no_orphans(
    stack: Stack, compose: Compose
) -> None:
    up = compose("up", "--detach")
    assert up.returncode == 0, up.stderr
    assert f"HEADWATER_VALKEY={stack.endpoints.valkey}" in up.stdout
    eventually(lambda: compose.states() == dict.fromkeys(PARTS, "healthy"), "all are healthy at the same time")
    again = compose("up")
    assert again.returncode == 0
    assert "already running" in again.stdout
    for read in READERS.values():
        assert read(stack.endpoints) == "value"

    family = compose.supervisor.children(recursive=True)
    assert len(family) > 2 * len(PARTS)
    compose.supervisor.kill()
    assert compose("status").returncode == 1
    restarted = compose("up", "--detach")  # at once, while the guards are still stopping the old servers
    assert restarted.returncode == 0, restarted.stderr
    assert not psutil.wait_procs(family, timeout=0)[1]
    for read in READERS.values():
        assert read(stack.endpoints) == "value"
    down = compose("down")
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    assert compose("status").returncode == 1
    assert "no stack is running" in compose("down").stderr


@pytest.mark.complete
def test_a_taken_port_is_reported_at_once(tmp_path: Path) -> None:
    compose = Compose(StackSettings(tmp_path, free_ports()))
    variable = Ports.variable("postgres")
    with socket.create_server(("127.0.0.1", int(compose.ports[variable]))):
        up = compose("up", "--detach")
    assert up.returncode == 1
    assert f"error: port {compose.ports[variable]} for 'postgres' is in use" in up.stderr
    assert variable in up.stderr
    assert compose("logs", "nothing").returncode == 1
