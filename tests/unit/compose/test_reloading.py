"""`headwater run --reload`: which processes a changed module restarts, on small real processes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from headwater.compose.errors import ComposeError
from headwater.compose.reloading import Reloader
from headwater.eventlog.programs.backoff import Backoff
from headwater.new import write
from headwater.projections.supervision.process import ProcessSpec, State
from headwater.projections.supervision.supervised import Supervisor
from tests.support.waiting import eventually

pytestmark = pytest.mark.programs

NAMES = ("commands", "projections", "api")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Supervisor]:
    """Processes with the names of Headwater's."""
    supervisor = Supervisor(
        [
            ProcessSpec(
                name=name,
                argv=("/bin/sh", "-c", f"test ! -e {tmp_path / 'broken'} || exit 3; exec sleep 600"),
                log=tmp_path / f"{name}.log",
                probe=lambda: None,
            )
            for name in NAMES
        ],
        Backoff(first_s=0.01, max_s=0.01, limit=1),
    )
    supervisor.start()
    yield supervisor
    supervisor.stop()


class Edited:
    """A project, whose modules a Reloader watches. domain, views: its files."""

    def __init__(self, folder: Path, services: Supervisor) -> None:
        self.domain, self.views = folder / "bank" / "domain.py", folder / "bank" / "views.py"
        self._services, self._shown = services, io.StringIO()
        self._reloader = Reloader(["bank"], services, Console(file=self._shown, width=200))

    def replace(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def restarted(self) -> set[str]:
        """The processes that run anew after one look, once all of them do."""
        before = {name: self._services[name].status.pid for name in NAMES}
        self._reloader.look()
        eventually(self._settled, "all run the new code")
        after = {name: self._services[name].status.pid for name in NAMES}
        return {name for name in NAMES if after[name] != before[name]}

    def _settled(self) -> bool:
        self._reloader.look()
        return not self._reloader.restarting

    def look(self) -> str:
        """What it has printed so far, after another look."""
        self._reloader.look()
        return self._shown.getvalue()


@pytest.fixture
def project(tmp_path: Path, services: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Edited:
    write("bank", tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return Edited(tmp_path / "project", services)


def test_a_rule_restarts_the_handler_and_the_api_and_a_view_the_read_side_too(project: Edited) -> None:
    assert project.restarted() == set(), "nothing has changed"
    project.replace(project.domain, "gt=0", "gt=1")
    assert project.restarted() == {"commands", "api"}
    assert "changed: bank/domain.py" in project.look()
    project.replace(project.views, '"deposited_cents"', '"paid_in_cents"')
    assert project.restarted() == {"commands", "api", "projections"}, "a view has another column"
    project.replace(project.domain, "    cents: int\n", "    cents: int\n    branch: str\n")
    assert project.restarted() == {"commands", "api", "projections"}, "an event has another field"


def test_a_mistake_restarts_nothing_until_it_is_mended(project: Edited) -> None:
    project.replace(project.domain, "def decide", "def decide(")
    assert project.restarted() == set()
    assert "the code from before keeps running:" in project.look() and "bank.domain" in project.look()
    project.replace(project.domain, "def decide(", "def decide")
    assert project.restarted() == {"commands", "api"}


@pytest.mark.complete
def test_a_process_that_was_given_up_starts_again_with_the_next_change(
    project: Edited, services: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    project.replace(project.domain, "gt=0", "gt=1")
    project.look()
    eventually(lambda: services["api"].status.state is State.FAILED, "it is given up")
    assert "api exited with status 3" in project.look()
    (tmp_path / "broken").unlink()
    project.replace(project.domain, "gt=1", "gt=2")
    assert "api" in project.restarted()
    assert "api runs the new code after" in project.look()


def test_modules_that_cannot_be_loaded_are_named(tmp_path: Path, services: Supervisor) -> None:
    with pytest.raises(ComposeError, match="no_such_bank"):
        Reloader(["no_such_bank"], services, Console(file=io.StringIO()))
