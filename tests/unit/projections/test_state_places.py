"""Which folder has the state of a deployment's stream views, and who may therefore build them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.state_files import (
    FRESH_S,
    StatePlace,
    known_id,
    others,
    own_place,
    why_not_here,
)

RUNNING = StatePlace("other", "host:/elsewhere", 5.0)
GONE = StatePlace("gone", "host:/gone", FRESH_S)


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    return LogSettings(state=tmp_path / "state")


def test_a_folder_has_one_id_wherever_it_is(settings: LogSettings, tmp_path: Path) -> None:
    assert known_id(settings) is None
    first = own_place(settings)
    assert own_place(settings).id == known_id(settings) == first.id
    settings.state.rename(tmp_path / "moved")
    moved = own_place(LogSettings(state=tmp_path / "moved"))
    assert (moved.id, moved.place == first.place) == (first.id, False)
    assert own_place(settings).id != first.id
    assert [path.name for path in (tmp_path / "moved" / "checkpoints").iterdir()] == ["id"]


def test_a_folder_on_a_disk_without_links_has_an_id_too(settings: LogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refused)
    assert own_place(settings).id == known_id(settings) == own_place(settings).id


def test_only_a_read_side_that_runs_with_another_folder_is_in_the_way(settings: LogSettings) -> None:
    assert why_not_here(settings, []) is None
    assert why_not_here(settings, [GONE]) is None
    assert why_not_here(settings, [RUNNING]) == (
        "its query could not continue: the running read side keeps the state of stream views at host:/elsewhere, and "
        f"this process at {settings.state}: run this there, with its HEADWATER_STATE; or stop that read side for good, "
        "and run this again after 10 minutes"
    )
    own = own_place(settings)
    assert why_not_here(settings, [RUNNING, own]) is None, "both may run during an update of the code"
    assert why_not_here(settings, [RUNNING, StatePlace(own.id, own.place, FRESH_S)]) is not None
    assert others(settings, [own, GONE, RUNNING]) == [RUNNING]
