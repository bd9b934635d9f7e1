"""The local stack's settings: defaults, variables, and errors that name the variable."""

import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.compose import ports
from headwater.compose.cli import app, status
from headwater.compose.errors import NotRunning, PortTaken
from headwater.compose.ports import free_port, free_ports, free_ports_in_a_row
from headwater.compose.settings import Ports, StackSettings
from headwater.compose.stack import CAPTURING, PARTS, Stack, check_ports, parts_for, parts_text
from headwater.compose.state import StateDirectory
from headwater.eventlog.errors import SettingError
from headwater.projections.supervision.process import ProcessSpec, State
from tests.support.waiting import eventually


def test_defaults_lead_to_the_addresses_that_clients_default_to() -> None:
    settings = StackSettings.from_environ({})
    assert settings.state == Path.cwd() / ".headwater"
    assert settings.endpoints.environment() == {
        "HEADWATER_KAFKA": "127.0.0.1:19092",
        "HEADWATER_POSTGRES": "postgresql://headwater@127.0.0.1:15432/headwater",
        "HEADWATER_ELASTICSEARCH": "http://127.0.0.1:19200",
        "HEADWATER_VALKEY": "valkey://127.0.0.1:16379",
        "HEADWATER_CONNECT": "http://127.0.0.1:18083",
        "HEADWATER_SHOP_DATABASE": "postgresql://shop_capture@127.0.0.1:15432/shop",
    }


def test_each_port_has_its_variable(tmp_path: Path) -> None:
    environ = {"HEADWATER_STATE": str(tmp_path), "HEADWATER_KAFKA_CONTROLLER_PORT": "7", "HEADWATER_VALKEY_PORT": "8"}
    settings = StackSettings.from_environ(environ)
    assert settings == StackSettings(tmp_path, Ports(kafka_controller=7, valkey=8))


@pytest.mark.parametrize("value", ["0", "65536", "-1", "kafka", "1.5", "¹"])
def test_a_port_that_is_none_is_refused_by_its_variable(value: str) -> None:
    with pytest.raises(SettingError, match="HEADWATER_KAFKA_PORT") as refused:
        StackSettings.from_environ({"HEADWATER_KAFKA_PORT": value})
    assert repr(value)[1:-1] in str(refused.value)


def test_a_taken_port_is_named_with_the_variable_that_changes_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {taken} .*HEADWATER_ELASTICSEARCH_PORT"):
            check_ports(free_ports().model_copy(update={"elasticsearch": taken}))


def test_the_port_of_the_api_is_checked_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        stack = Stack(StackSettings(tmp_path, free_ports()), ("valkey",), api_port=other.getsockname()[1])
        with pytest.raises(PortTaken, match=r"port \d+ for 'api' is in use; .*set HEADWATER_API_PORT"):
            stack.start()
    assert stack.status() == []
    assert not (tmp_path / "valkey").exists()


def test_status_lists_the_processes_that_run_on_the_servers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path))
    with Stack(StackSettings(tmp_path), ()) as stack:
        services = stack.supervise(
            [
                ProcessSpec(name=name, argv=("/bin/sleep", "600"), log=tmp_path / f"{name}.log", probe=lambda: None)
                for name in ("commands", "api")
            ]
        )
        services.start()
        try:
            eventually(lambda: are_healthy(tmp_path), "their state is recorded")
            status(as_json=True)
            shown = json.loads(capsys.readouterr().out)
            assert [(entry["name"], entry["state"]) for entry in shown] == [("commands", "healthy"), ("api", "healthy")]
            assert all(each["pid"] for each in shown)
        finally:
            services.stop()


@pytest.mark.parametrize("verb", [["up"], ["up", "--detach"], ["run"], ["status"], ["down"], ["logs"]])
def test_a_state_folder_that_cannot_be_made_is_named_or_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "a file" / "state"))
    ended = CliRunner().invoke(app, verb).exception
    assert isinstance(ended, SystemExit | SettingError | NotRunning | None)
    if verb[0] in ("up", "run"):
        assert 'HEADWATER_STATE" is' in str(ended)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def test_free_ports_pass() -> None:
    check_ports(free_ports())


def test_a_free_port_is_none_from_which_connections_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server restarts, another program's connection could take its port."""
    (outgoing := tmp_path / "ip_local_port_range").write_text("30000\t60999\n")
    monkeypatch.setattr("headwater.compose.ports._OUTGOING", outgoing)
    found = [free_port() for _ in range(20)]
    assert max(found) < 30_000
    for text in ("1024 60999", "", "nothing"):  # then the system chooses
        outgoing.write_text(text)
        assert free_port() > 0


def test_a_port_is_given_once_although_nothing_listens_on_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes choose ports for servers that they start at the same time."""
    (outgoing := tmp_path / "ip_local_port_range").write_text(f"{ports.FIRST + 40}\t60999\n")
    monkeypatch.setattr(ports, "_OUTGOING", outgoing)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    given = tmp_path / "ports.json"
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: free_port(), range(30)))
    assert len(set(found)) == 30
    assert json.loads(given.read_text()).keys() >= {str(each) for each in found if each < ports.FIRST + 40}
    given.write_text(json.dumps({str(ports.FIRST + number): time.time() for number in range(39)}))
    assert free_port() >= ports.FIRST + 39, "the system chooses if none is found"
    given.write_text(json.dumps({str(ports.FIRST + number): time.time() - ports.GIVEN_S for number in range(40)}))
    assert free_port() < ports.FIRST + 40, "it was long ago"
    for unreadable in ("", "[1]", "nothing", '{"20000": "x"}'):
        given.write_text(unreadable)
        assert free_port() < ports.FIRST + 40
    monkeypatch.setenv("HEADWATER_CACHE", str(given))  # no folder
    assert free_port() < ports.FIRST + 40


def test_ports_in_a_row_are_all_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (outgoing := tmp_path / "ip_local_port_range").write_text(f"{ports.FIRST + 400}\t60999\n")
    monkeypatch.setattr(ports, "_OUTGOING", outgoing)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    firsts = [free_ports_in_a_row(5) for _ in range(10)]
    rows = {port for first in firsts for port in range(first, first + 5)}
    assert len(rows) == 50
    assert not rows & {free_port() for _ in range(50)}
    outgoing.write_text("nothing")  # then the system chooses the first
    assert free_ports_in_a_row(5) > 0


def test_the_port_of_a_part_that_does_not_run_may_be_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ports = free_ports().model_copy(update={"connect": other.getsockname()[1]})
        check_ports(ports, PARTS)
        with pytest.raises(PortTaken, match="HEADWATER_CONNECT_PORT"):
            check_ports(ports, CAPTURING)


def test_only_a_deployment_with_a_source_gets_kafka_connect() -> None:
    assert parts_for(("listings", "orders")) == PARTS
    assert parts_for(("listings", "shop")) == CAPTURING
    assert parts_text(PARTS) == "Kafka, PostgreSQL, Elasticsearch and Valkey"
    assert parts_text(CAPTURING) == "Kafka, PostgreSQL, Elasticsearch, Valkey and Kafka Connect"


def are_healthy(folder: Path) -> bool:
    record = StateDirectory(folder).read()
    return record is not None and all(process.state is State.HEALTHY for process in record.processes)
