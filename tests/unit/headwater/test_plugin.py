"""The fixtures for users' tests: what they start, once per run, and that nothing is imported without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater import new
from headwater.compose.errors import ComposeError
from headwater.compose.parts import kafka
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.compose.testing import servers
from headwater.compose.testing.deployment import import_folders, variables_of
from headwater.compose.testing.servers import SERVERS, chosen_servers
from headwater.eventlog.errors import SettingError
from headwater.eventlog.settings import LogSettings

pytestmark = pytest.mark.programs

STARTED = """
import contextlib, headwater.compose.testing.deployment as deployment, headwater.compose.testing.servers as servers

@contextlib.contextmanager
def started(settings):
    print("SERVERS START")
    yield
    print("SERVERS END")

@contextlib.contextmanager
def running(settings, modules, state):
    print("DEPLOYMENT OF", *modules, state.is_dir())
    yield settings
    print("DEPLOYMENT ENDS")

servers.chosen_servers = lambda environ: started
deployment.running_deployment = running
"""
TESTS = """
def test_one(deployment): assert deployment.ports.kafka
def test_two(deployment, headwater_servers): assert deployment is headwater_servers
"""


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert new.main(["bank"]) == 0
    return tmp_path / "bank"


def run(folder: Path, *words: str) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others import what they like
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_servers_and_a_deployment_of_the_projects_modules_start_once(bank: Path) -> None:
    (bank / "conftest.py").write_text((bank / "conftest.py").read_text() + STARTED)
    (bank / "tests" / "test_both.py").write_text(TESTS)
    said = run(bank, "-s", "tests/test_both.py")
    lines = [line.strip(".") for line in said.splitlines()]
    shown = [line for line in lines if line.startswith(("SERVERS", "DEPLOYMENT"))]
    assert shown == ["SERVERS START", "DEPLOYMENT OF bank True", "DEPLOYMENT ENDS", "SERVERS END"]


def test_a_project_chooses_other_modules(bank: Path) -> None:
    chosen = "\nimport pytest\n@pytest.fixture(scope='session')\ndef headwater_modules(): return ['orders', 'bank']\n"
    (bank / "conftest.py").write_text((bank / "conftest.py").read_text() + STARTED + chosen)
    (bank / "tests" / "test_both.py").write_text(TESTS)
    assert "DEPLOYMENT OF orders bank True" in run(bank, "-s", "tests/test_both.py")


def test_tests_without_a_server_import_none_of_it(bank: Path) -> None:
    heavy = "pyspark", "docker", "testcontainers", "fastapi", "httpx", "psutil", "compose"
    script = f"\nimport sys\n\ndef test_it():\n    assert [n for n in {heavy!r} if n in sys.modules] == []\n"
    (bank / "tests" / "test_imports.py").write_text(script)
    assert "2 deselected" in run(bank)


def test_containers_are_chosen_if_an_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "why_no_engine", lambda: None)
    assert chosen_servers({}) is servers.in_containers
    assert chosen_servers({SERVERS: "stack"}) is Stack
    monkeypatch.setattr(servers, "why_no_engine", lambda: "no engine today")
    assert chosen_servers({}) is Stack
    with pytest.raises(ComposeError, match=f"no engine today; start one, or set {SERVERS} to stack"):
        chosen_servers({SERVERS: "containers"})
    with pytest.raises(SettingError, match="containers or stack"):
        chosen_servers({SERVERS: "docker"})


@pytest.mark.parametrize(
    ("host", "said"),
    [("unix:///nowhere/docker.sock", "no container engine answers"), ("tcp://127.0.0.1:9", "no container engine")],
)
def test_an_engine_that_does_not_answer_is_none(host: str, said: str) -> None:
    script = "from headwater.compose.testing.servers import why_no_engine; print(why_no_engine())"
    environment = {**os.environ, "DOCKER_HOST": host}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(said)


class Stopped:
    """A container that has ended."""

    status = "exited"

    def get_wrapped_container(self) -> Stopped:
        return self

    def reload(self) -> None:
        pass

    def get_logs(self) -> tuple[bytes, bytes]:
        return b"no space left\n", b""


def test_a_server_that_ends_is_named_with_the_end_of_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def container(service: object) -> Iterator[Stopped]:
        yield Stopped()

    monkeypatch.setattr(servers, "_container", container)
    monkeypatch.setattr(kafka, "probe", lambda port: "refused")
    with (
        pytest.raises(ComposeError, match=r"'kafka' is exited and cannot serve: refused; .* no space left"),
        servers.in_containers(StackSettings(tmp_path)),
    ):
        pass


def test_a_deployment_under_test_takes_nothing_from_another_in_the_shell(tmp_path: Path) -> None:
    shell = {
        "HEADWATER_KAFKA": "production:9092",
        "HEADWATER_KAFKA_SECURITY": "SASL_SSL",
        "HEADWATER_API_KEYS": "keys.json",
        "HEADWATER_PARTITIONS": "64",
        "HEADWATER_CACHE": "/cache",
    }
    servers_here = StackSettings(tmp_path)
    found = {**shell, **variables_of(servers_here, ["listings"], tmp_path, shell)}
    settings = LogSettings.from_environment(found)
    assert (settings.bootstrap, settings.partitions, settings.security.protocol) == (
        servers_here.endpoints.kafka, LogSettings.partitions, "PLAINTEXT",
    )  # fmt: skip
    assert (found["HEADWATER_API_KEYS"], found["HEADWATER_CACHE"]) == ("", "/cache")
    assert settings.environment.startswith("test_")
    assert settings.environment != variables_of(servers_here, ["listings"], tmp_path, {})["HEADWATER_ENVIRONMENT"]


def test_programs_find_modules_that_pytest_has_added_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "ledgers").mkdir(parents=True)
    (tmp_path / "src" / "ledgers" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert import_folders(["ledgers.domain", "listings", "pydantic", "no_such_module"]) == [str(tmp_path / "src")]
    monkeypatch.chdir(tmp_path / "src")
    assert import_folders(["ledgers"]) == []
