"""`headwater new` writes a project that passes its checks and tests, and refuses names that would not work."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.new import PORTS, main, wrong_name

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With Headwater as it is installed, and no other setting."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    environment["MYPY_CACHE_DIR"] = str(ROOT / ".mypy_cache" / "new")  # else it checks all of Headwater each time
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["bank"]) == 0
    return tmp_path / "bank"


@pytest.mark.parametrize("name", ["clinic", pytest.param("bank", marks=pytest.mark.complete)])
def test_its_files_pass_ruff_mypy_and_their_tests(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`clinic` stands for any name; `bank` has the accounts of the tutorial."""
    monkeypatch.chdir(tmp_path)
    assert main([name]) == 0
    for words in (
        ("ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,W,I,UP,B,SIM,D1", "--ignore", "D104"),
        ("ruff", "format", "--check"),
        ("mypy", "."),
        ("pytest", "-q", "-p", "no:cacheprovider"),
    ):
        ignored = ("--per-file-ignores", "tests/*:D1") if "check" in words and "--isolated" in words else ()
        ended = run(tmp_path / name, "-m", *words, *ignored)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_port_that_is_taken_is_another_one_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setitem(PORTS, "HEADWATER_POSTGRES_PORT", taken.getsockname()[1])
        assert main(["clinic"]) == 0
    makefile = (tmp_path / "clinic" / "Makefile").read_text()
    assert re.match(r"export HEADWATER_POSTGRES_PORT := \d+\n", makefile, re.MULTILINE)
    assert "account" not in (tmp_path / "clinic" / "clinic" / "domain.py").read_text()


def test_what_it_writes_runs_on_the_port_that_its_readme_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headwater.new.is_free", lambda port: port != PORTS["HEADWATER_API_PORT"])
    assert main(["clinic"]) == 0
    (line,) = (line for line in (tmp_path / "clinic" / "Makefile").read_text().splitlines() if "export" in line)
    port = line.removeprefix("export HEADWATER_API_PORT := ")
    readme = (tmp_path / "clinic" / "README.md").read_text()
    assert readme.count(f"http://127.0.0.1:{port}/") == 3 and "18080" not in readme


@pytest.mark.complete
def test_every_entry_point_finds_it_in_its_folder(bank: Path) -> None:
    """Also if Python does not look in the current folder, as for a console script; packages beside it do no harm."""
    explained = [run(bank, "-m", "headwater.replay", "explain", "owners")]
    for name in ("api", "commands", "eventlog", "projections"):
        (bank / name).mkdir()
        (bank / name / "__init__.py").write_text("raise RuntimeError('hidden')\n")
    explained += [
        run(bank, *words, "explain", "owners")
        for words in (("-P", "-m", "headwater.replay"), ("-P", "-m", "headwater", "replay"))
    ]
    for ended in explained:
        assert ended.returncode == 0, ended.stderr
        assert "deposited_cents" in ended.stdout


OWN_NAMES = ("api", "commands", "compose", "eventlog", "projections", "replay")


@pytest.mark.complete
def test_its_packages_may_be_called_as_the_folders_of_headwater(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed, Headwater is one package: neither hides the other, whoever comes first on the path."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # has the checkout, for modules of tests
    for name in OWN_NAMES:
        (bank / name).mkdir()
        (bank / name / "__init__.py").write_text(f"NAME = {name!r}\n")
    (bank / "bank" / "own.py").write_text(
        "".join(f"import {name}\nassert {name}.NAME == {name!r}, {name}.__file__\n" for name in OWN_NAMES)
    )
    for words in (
        ("-m", "headwater.replay"),
        ("-P", "-m", "headwater.replay"),
        (str(Path(sys.executable).parent / "headwater"), "replay"),
    ):
        ended = run(bank, *words, "explain", "owners")
        assert ended.returncode == 0, ended.stderr
    ended = run(bank, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for name in OWN_NAMES:
        ended = run(bank, "-P", "-c", f"import headwater.{name}, {name}")
        assert f"No module named '{name}'" in ended.stderr, "nothing else is installed"


def test_a_folder_that_is_there_stays_as_it_is(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bank / "README.md").write_text("mine")
    assert main(["bank"]) == 2
    assert 'there is "bank" already' in capsys.readouterr().err
    assert (bank / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my-bank", "no name of a package"),
        ("Bank", "no name of a package"),
        ("../bank", "no name of a package"),
        ("2bank", "no name of a package"),
        ("", "no name of a package"),
        ("class", "keyword"),
        ("match", "keyword"),
        ("headwater", "Headwater's own package"),
        ("json", "a module of Python"),
        ("pydantic", "an installed package"),
        ("listings", "a shipped sample"),
        ("tests", "needs itself"),
        ("run", "needs itself"),
    ],
)
def test_a_name_that_would_not_work_is_refused(name: str, said: str) -> None:
    assert said in wrong_name(name)


def test_wrong_modules_of_a_project_are_named(bank: Path) -> None:
    (bank / "pyproject.toml").write_text('[tool.headwater]\nmodules = "bank"\n')
    ended = run(bank, "-m", "headwater.replay", "list")
    assert ended.returncode == 1
    assert f'correct {bank}/pyproject.toml: write modules = ["bank"], a list of names' in ended.stderr
