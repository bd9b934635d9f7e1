"""What people see of `headwater stack`, on a terminal of 80 columns, and what pipes get."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.compose import cli
from headwater.compose.settings import Ports
from headwater.compose.state import Record, StateDirectory
from headwater.projections.supervision.process import ProcessStatus, State

REASON = "the broker has not answered for 12 s: connection to 127.0.0.1:19092 was refused; see kafka.log"
PROCESSES = (
    ProcessStatus("kafka", State.UNHEALTHY, 4711, 4710, 1.0, 2, 1.0, REASON),
    ProcessStatus("postgres", State.HEALTHY, 4713, 4712, 1.0, 0, 1.0, ""),
    ProcessStatus("valkey", State.BACKOFF, None, None, 1.0, 1_234, 1.0, "exited with status 1"),
)


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stack that some process says it owns."""
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path))
    monkeypatch.setattr(StateDirectory, "is_owned", lambda _: True)
    monkeypatch.setattr(StateDirectory, "read", lambda _: Record(4_000, Ports(), PROCESSES))
    return tmp_path


def run(*words: str, terminal: bool = False) -> tuple[int, list[str]]:
    env = {"COLUMNS": "80", "TTY_COMPATIBLE": "1" if terminal else "0", "NO_COLOR": "1", "TERM": "dumb"}
    done = CliRunner().invoke(cli.app, list(words), env=env)
    return done.exit_code, [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("up")
def test_status_on_a_terminal() -> None:
    assert run("status", terminal=True) == (
        1,
        [
            "part      state      pid   restarts  detail",
            "kafka     unhealthy  4711         2  the broker has not answered for 12 s:",
            "                                     connection to 127.0.0.1:19092 was refused;",
            "                                     see kafka.log",
            "postgres  healthy    4713         0  -",
            "valkey    backoff    -        1,234  exited with status 1",
        ],
    )


@pytest.mark.usefixtures("up")
def test_status_in_a_pipe_and_as_json() -> None:
    code, (head, kafka, *_) = run("status")
    assert head.split("\t") == ["part", "state", "pid", "restarts", "detail"]
    assert kafka.split("\t") == ["kafka", "unhealthy", "4711", "2", REASON]
    as_json = run("status", "--json")
    assert code == as_json[0] == 1
    assert [entry["name"] for entry in json.loads("".join(as_json[1]))] == ["kafka", "postgres", "valkey"]


def test_up_on_a_stack_that_is_up_and_logs_that_are_not_there(
    up: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("up") == (0, [f"already running in '{up}'"])
    (up / "logs").mkdir()
    (up / "logs" / "kafka.log").write_text("one\ntwo [/red]\n")
    assert run("logs", "--lines", "1") == (0, ["        kafka │ two [/red]"])
    monkeypatch.setattr(sys, "argv", ["compose", "logs", "nothing"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: no log of 'nothing' in '{up}/logs'; use one of 'kafka'\n"


def test_no_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    monkeypatch.setenv("HEADWATER_STATE", str(folder))
    assert run("status", terminal=True) == (1, [f"no stack is running in '{folder}'"]), "a path is never broken"
