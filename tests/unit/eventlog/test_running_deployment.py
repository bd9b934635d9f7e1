"""Other programs find the deployment that `headwater run` keeps up, and only that one."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.eventlog.programs.running_deployment import (
    FILE,
    Running,
    main,
    published,
    running_in,
    use_running_deployment,
)

SETTINGS = {"HEADWATER_KAFKA": "127.0.0.1:29092", "HEADWATER_MODULES": "bank", "HEADWATER_MASTER_KEY": "it's secret"}
SECRET = ["HEADWATER_MASTER_KEY"]


def test_it_is_found_as_long_as_it_runs_and_only_by_its_user(tmp_path: Path) -> None:
    assert running_in(tmp_path) is None
    assert running_in(tmp_path / "no folder") is None
    with published(tmp_path, SETTINGS, SECRET):
        assert running_in(tmp_path) == Running(SETTINGS, SECRET)
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert running_in(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.programs
def test_the_file_of_one_that_was_killed_is_not_taken_for_one_that_runs(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from headwater.eventlog.programs.running_deployment import published\n"
        "with published(Path(sys.argv[1]), {'HEADWATER_KAFKA': 'k:1'}, []):\n"
        "    print('up', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"up\n"
        assert running_in(tmp_path) == Running({"HEADWATER_KAFKA": "k:1"}, [])
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / FILE).exists() and running_in(tmp_path) is None
    with published(tmp_path, SETTINGS, SECRET):
        assert running_in(tmp_path) == Running(SETTINGS, SECRET)


def test_settings_of_two_deployments_are_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".headwater").mkdir()
    with published(tmp_path / ".headwater", SETTINGS, SECRET):
        for other in (
            {"HEADWATER_KAFKA": "prod:9092"},
            {"HEADWATER_POSTGRES_FILE": "/f"},
            {"HEADWATER_ENVIRONMENT": "b"},
        ):
            environ = dict(other)
            use_running_deployment(environ)
            assert environ == other
        environ = {"HEADWATER_MODULES": "bank,orders", "HEADWATER_KAFKA": ""}
        use_running_deployment(environ)
        assert environ == {**SETTINGS, "HEADWATER_MODULES": "bank,orders"}
        environ = {"HEADWATER_STATE": "elsewhere"}
        use_running_deployment(environ)
        assert environ == {"HEADWATER_STATE": "elsewhere"}
    environ = {}
    use_running_deployment(environ)
    assert environ == {}


def test_its_modules_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    environ = {"HEADWATER_STATE": str(tmp_path)}
    with published(tmp_path, {"PYTHONPATH": "/some/project"}, []):
        use_running_deployment(environ)
    assert sys.path[-1] == "/some/project" and environ["PYTHONPATH"] == "/some/project"


def test_a_shell_reads_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with published(tmp_path, SETTINGS, SECRET):
        assert main([str(tmp_path)]) == 0
    script = f"{capsys.readouterr().out}\nenv"
    printed = subprocess.run(["env", "-i", "bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert set(printed.splitlines()) >= {f"{name}={value}" for name, value in SETTINGS.items()}
    assert main([str(tmp_path)]) == 1
    assert f'in "{tmp_path}": start one with `headwater run`' in capsys.readouterr().err


@pytest.mark.programs
def test_a_terminal_shows_no_secret_unasked(tmp_path: Path) -> None:
    def shown(*words: str) -> str:
        reader, terminal = pty.openpty()
        command = [sys.executable, "-m", "headwater", "env", str(tmp_path), *words]
        subprocess.run(command, stdout=terminal, check=True, timeout=100)
        os.close(terminal)
        printed = b""
        try:
            while part := os.read(reader, 4096):
                printed += part
        except OSError:  # all was read
            pass
        os.close(reader)
        return printed.decode()

    with published(tmp_path, SETTINGS, SECRET):
        assert "secret\r\n" not in shown() and "HEADWATER_MASTER_KEY" in shown() and "HEADWATER_KAFKA=127" in shown()
        assert "HEADWATER_MASTER_KEY='it" in shown("--secrets")
