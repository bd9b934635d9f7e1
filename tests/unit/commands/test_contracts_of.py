"""The contract tests that ship: a package of one's own runs them with one line, and they fail where they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.commands.testing.__main__ import main
from headwater.testing import contracts_of

pytestmark = pytest.mark.programs

DOMAIN = """
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event, Rejected, rename, upcast


class Put(Event, type="shelf.put", version=2, history=[upcast(1, rename("thing", "what"))]):
    shelf_id: str
    what: str


class Shelf(BaseModel):
    model_config = ConfigDict(frozen=True)
    things: tuple[str, ...] = ()


def evolve(state: Shelf, event: Put) -> Shelf:
    return Shelf(things=(*state.things, event.what))


class PutThere(Command, type="shelf.put_there"):
    shelf_id: str
    what: str


def decide(command: PutThere, state: Shelf) -> Sequence[Event]:
    if command.what in state.things:
        raise Rejected("there_already", f"{command.what!r} is there already")
    return [Put(shelf_id=command.shelf_id, what=command.what)]


shelf = Aggregate(name="shelf", id_field="shelf_id", initial=Shelf(), decide=decide, evolve=evolve)
"""
TESTS = """
from headwater.testing import contracts_of

TestShelf = contracts_of("store.domain")
"""
FEW = """
from hypothesis import Phase, settings

settings.register_profile("few", max_examples=5, phases=[Phase.generate], database=None)
settings.load_profile("few")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text("")
    (tmp_path / "store" / "domain.py").write_text(DOMAIN)
    (tmp_path / "test_contracts.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(FEW)
    return tmp_path


def run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_MODULES"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # to import them takes longer than the tests
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=package, env=environment, capture_output=True, text=True, timeout=600
    )


def checked(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(package, "pytest", "-q", "-p", "no:cacheprovider", "-rA", *words)


def golden(package: Path, version: int) -> Path:
    return package / "store" / "golden" / "shelf.put" / f"{version}.json"


def test_golden_files_are_asked_for_made_and_kept(package: Path) -> None:
    before = checked(package, "-k", "version")
    assert before.returncode == 1, before.stdout + before.stderr
    assert "`headwater golden store.domain` writes it" in before.stdout

    made = run(package, "headwater.commands.testing", "store.domain")
    # nothing makes the first version of an event that is declared with a second one already
    assert (made.returncode, made.stderr) == (1, "")
    assert f"{golden(package, 1)}: write it by hand" in made.stdout
    golden(package, 1).write_text('{"shelf_id": "S", "thing": "tea"}')
    golden(package, 2).unlink()
    again = run(package, "headwater.commands.testing", "store.domain")
    assert (again.returncode, again.stdout) == (0, f"{golden(package, 2)}: written\n")
    assert golden(package, 2).read_text() == '{\n  "shelf_id": "S",\n  "what": "tea"\n}\n'
    assert run(package, "headwater.commands.testing", "store.domain").stdout == ""

    whole = checked(package)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for test in (
        "a_retry_of_everything_adds_nothing[shelf]",
        "every_released_version_is_kept_readable[shelf.put-1]",
        "every_released_version_is_kept_readable[shelf.put-2]",
    ):
        assert f"PASSED test_contracts.py::TestShelf::test_{test}" in whole.stdout


@pytest.mark.parametrize(
    ("old", "new", "fails", "says"),
    [
        (
            'what)]\n\n\nshelf', 'what)] if command.what else "nothing"\n\n\nshelf',
            "test_every_command_is_accepted_or_rejected",
            "shelf.put_there failed",
        ),
        (
            "    things: tuple[str, ...] = ()",
            "    things: tuple[str, ...] = ()\n\n    def __eq__(self, other): return self is other",
            "test_events_are_read_back_as_decided",
            "assert (Shelf(",
        ),
    ],
    ids=["a rule that returns text", "a state that is not what was kept"],
)  # fmt: skip
def test_what_breaks_a_contract_fails(package: Path, old: str, new: str, fails: str, says: str) -> None:
    golden(package, 1).parent.mkdir(parents=True)
    golden(package, 1).write_text('{"shelf_id": "S", "thing": "tea"}')
    golden(package, 2).write_text('{"shelf_id": "S", "what": "tea"}')
    assert old in DOMAIN
    (package / "store" / "domain.py").write_text(DOMAIN.replace(old, new))
    ran = checked(package, "--tb=short", "-k", fails.partition("[")[0])
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"FAILED test_contracts.py::TestShelf::{fails}" in ran.stdout
    assert says in ran.stdout


def test_a_field_without_a_version_is_refused_at_import(package: Path) -> None:
    golden(package, 2).parent.mkdir(parents=True)
    golden(package, 2).write_text('{"shelf_id": "S", "what": "tea"}')
    domain = DOMAIN.replace("    what: str\n\n\nclass Shelf", "    what: str\n    pieces: int | None\n\n\nclass Shelf")
    assert domain != DOMAIN
    (package / "store" / "domain.py").write_text(domain)
    ran = checked(package)
    assert "2.json is no valid event any more: pieces: Field required: its fields have changed" in ran.stdout


def test_the_golden_files_of_a_module_may_lie_in_another_folder(package: Path) -> None:
    ran = run(package, "headwater.commands.testing", "store.domain", "--golden", "golden")
    assert (package / "golden" / "shelf.put" / "2.json").exists(), ran.stdout + ran.stderr
    assert not golden(package, 2).exists()


def test_a_module_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["headwater.nowhere"]) == 2
    assert "headwater.nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("modules", [(), ("headwater.samples.sensors.domain",)])
def test_modules_without_an_aggregate_are_an_error(modules: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no aggregate in"):
        contracts_of(*modules)
