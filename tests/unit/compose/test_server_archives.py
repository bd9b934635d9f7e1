"""The archives of the servers' classes: each server's JVM can use its own, and one that is of no use does no harm."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.compose import stack
from headwater.compose.parts import installation
from headwater.compose.parts.elasticsearch_node import JVM_OPTIONS
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import CAPTURING, ON_A_JVM, fetch_jars, make_archives, specs_of
from headwater.projections.supervision.process import StartFailed

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def archives() -> list[Path]:
    made = make_archives()
    assert len(made) == len(ON_A_JVM)
    return made


def started(server: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A JVM with the options and the classpath of a server, which ends at once."""
    (spec,) = specs_of(StackSettings(folder, free_ports()), (server,))
    if server == "elasticsearch":
        command: Sequence[str] = [
            str(installation.java()),
            *json.loads(spec.env["HEADWATER_NODE"])["options"],
            *JVM_OPTIONS,
        ]
    else:
        command = [word for word in spec.argv[:-1] if word.startswith(("-", "/"))]
    ran = [*command, *options, "-version"]
    return subprocess.run(ran, env={**os.environ, **spec.env}, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.programs
@pytest.mark.parametrize("server", ON_A_JVM)
def test_a_server_can_use_its_archive(archives: list[Path], server: str, tmp_path: Path) -> None:
    assert any(archive.name.startswith(f"{server}-") for archive in archives)
    ran = started(server, tmp_path, "-XX:AOTMode=on")  # it fails if it cannot
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.programs
def test_a_jvm_with_another_classpath_starts_without_it(
    archives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_kafka = next(archive for archive in archives if archive.name.startswith("kafka-"))
    monkeypatch.setattr(installation, "find_archive", lambda *_: of_kafka)
    assert started("connect", tmp_path).returncode == 0
    assert started("connect", tmp_path, "-XX:AOTMode=on").returncode != 0


def test_an_archive_that_was_cut_off_is_not_used(
    archives: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = fetch_jars(CAPTURING)["kafka"]
    assert installation.archive_options("kafka", jars)
    (whole,) = (archive for archive in archives if archive.name.startswith("kafka-"))
    (tmp_path / whole.name).write_bytes(whole.read_bytes()[:1_000_000])
    monkeypatch.setattr(installation, "ARCHIVES", tmp_path)
    assert installation.archive_options("kafka", jars) == ()


def test_they_are_made_once(archives: list[Path]) -> None:
    made = [archive.stat().st_mtime_ns for archive in archives]
    assert make_archives() == archives
    assert [archive.stat().st_mtime_ns for archive in archives] == made


def test_a_server_that_does_not_start_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise StartFailed("kafka", "exited with status 1", tmp_path / "kafka.log")

    monkeypatch.setattr(installation, "ARCHIVES", tmp_path / "servers")
    monkeypatch.setattr(stack, "_record_archives", fail)
    assert make_archives() == []
    assert "'kafka' did not become healthy" in caplog.text
    assert "start slower: kafka, elasticsearch, connect" in caplog.text


def test_an_installation_that_cannot_be_written_to_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(installation, "ARCHIVES", tmp_path / "file" / "servers")
    monkeypatch.setattr(stack, "_record_archives", pytest.fail)
    assert make_archives() == []
    assert "start slower" in caplog.text
