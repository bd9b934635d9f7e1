"""Finding Java: what is accepted, and errors that say what to install."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.projections.spark.setup import java
from headwater.projections.spark.setup.java import JavaError, find_java, parse_major


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("17.0.15", 17), ("25", 25), ("26-ea", 26)])
def test_the_feature_release_is_read(version: str, major: int) -> None:
    assert parse_major(f'openjdk version "{version}" 2026-01-20') == major


def test_output_without_a_version_is_an_error() -> None:
    with pytest.raises(JavaError, match="no version"):
        parse_major("command not understood")


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "path", "21")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"), prepend=":")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert fake_java(tmp_path / "home", "17.0.1") == find_java()


def test_an_old_java_is_named_with_the_command_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda tool: "/usr/bin/dnf" if tool == "dnf" else None)
    fake_java(tmp_path, "11.0.2")
    with pytest.raises(JavaError, match=r"is Java 11; Spark needs Java 17 .*sudo dnf install"):
        find_java()


def test_no_java_is_named_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda tool: "/opt/brew" if tool == "brew" else None)
    with pytest.raises(JavaError, match=r"no Java found.*brew install"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="JAVA_HOME"):
        find_java()


def test_an_unsupported_platform_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(JavaError, match="'win32' is not supported"):
        find_java()


@pytest.mark.programs
def test_as_a_script_it_needs_no_packages(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-S", java.__file__],
        env={"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: JAVA_HOME is")
