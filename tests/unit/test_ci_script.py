"""What `.ci/run` installs before it runs the suite, and that it runs no suite without a server that tests need."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.sources import mariadb_server

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
SERVER = ("mariadbd", "mariadb-install-db", "my_print_defaults")
TOOLS = ("make", "curl", "java", "python3", "chromium")


def run(folder: Path, programs: Sequence[str], user: int = 0) -> tuple[int, list[str], str]:
    """Run the script where only these programs exist; returns its exit code, what was run, and its errors."""
    log = folder / "log"
    for name in programs:
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n')
    (folder / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (folder / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    for path in folder.iterdir():
        path.chmod(0o755)
    for name in ("bash", "dirname", "env", "mktemp", "rm", "sh"):
        (folder / name).symlink_to(f"/bin/{name}")
    script = SCRIPT.read_text().replace(":/usr/sbin", "")  # where this machine may have a server
    (copy := folder / "ci").mkdir()
    (copy / "run").write_text(script)
    done = subprocess.run(
        ["/bin/bash", str(copy / "run")], env={"PATH": str(folder)}, capture_output=True, text=True, timeout=600
    )
    ran = log.read_text().splitlines() if log.exists() else []
    return done.returncode, [line for line in ran if not line.startswith("python3")], done.stderr


SUITE = ["make check", "make docs", "make test", "make test-touched MINUTES=35"]


@pytest.mark.programs
def test_where_nothing_is_missing_only_the_suite_runs(tmp_path: Path) -> None:
    assert run(tmp_path, (*TOOLS, *SERVER)) == (0, SUITE, "")


@pytest.mark.programs
def test_the_program_that_checks_alerts_is_taken_from_its_package(tmp_path: Path) -> None:
    fetched = ["apt-get update -qq", "apt-get download -qq prometheus", "dpkg-deb --extract prometheus_*.deb ."]
    assert run(tmp_path, (*TOOLS, *SERVER, "apt-get", "dpkg-deb")) == (0, [*fetched, *SUITE], "")


@pytest.mark.programs
@pytest.mark.parametrize("user", [0, 1000])
def test_what_is_missing_is_installed_without_questions(tmp_path: Path, user: int) -> None:
    code, ran, errors = run(tmp_path, ("make", "apt-get", "java"), user)
    wanted = "curl python3 python3-venv mariadb-server-core mariadb-client-core chromium"
    install = f"apt-get install -y --no-install-recommends {wanted}"
    assert (code, ran) == (0, ["apt-get update", install, *SUITE]), errors


@pytest.mark.programs
def test_where_nothing_can_be_installed_the_suite_does_not_run(tmp_path: Path) -> None:
    code, ran, errors = run(tmp_path, TOOLS)
    assert (code, ran) == (1, [])
    assert "mariadb-server-core" in errors


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_test_without_its_server_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(outcome, match="install the packages mariadb-server"), mariadb_server.mariadb():
        pass
