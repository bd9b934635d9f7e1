"""The state directory: one owner, a record for others, and what a killed owner left."""

import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from headwater.compose.errors import AlreadyRunning, ComposeError
from headwater.compose.settings import Ports
from headwater.compose.state import StateDirectory
from headwater.eventlog.errors import SettingError
from headwater.projections.supervision.process import ProcessStatus, State


def test_there_is_one_owner_at_a_time(tmp_path: Path) -> None:
    first, second = StateDirectory(tmp_path), StateDirectory(tmp_path)
    assert not second.is_owned()
    first.take()
    assert second.is_owned()
    with pytest.raises(AlreadyRunning, match=str(tmp_path)):
        second.take()
    first.release()
    second.take()
    second.release()


def test_whoever_looks_for_an_owner_is_not_taken_for_one(tmp_path: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            StateDirectory(tmp_path).is_owned()

    looking = [threading.Thread(target=look) for _ in range(3)]
    for each in looking:
        each.start()
    try:
        for _ in range(500):
            state = StateDirectory(tmp_path)
            state.take()
            state.release()
    finally:
        stop.set()
        for each in looking:
            each.join()


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/headwater"])
def test_a_folder_that_cannot_be_used_is_named_with_its_variable(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    folder = tmp_path / {"below a file": "a file/state"}.get(place, place)
    with pytest.raises(SettingError, match=r"HEADWATER_STATE.*a folder that can be written"):
        StateDirectory(folder).take()


def test_the_record_reads_back(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    assert state.read() is None
    status = ProcessStatus("kafka", State.HEALTHY, 11, 12, 1.0, 2, 3.0, "")
    state.write(Ports(kafka=1), [status])
    record = state.read()
    assert record is not None
    assert (record.ports, record.processes) == (Ports(kafka=1), (status,))


def test_a_record_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text('{"owner": 1}')
    with pytest.raises(ComposeError, match=r"stack\.json.*delete it"):
        StateDirectory(tmp_path).read()


@pytest.mark.programs
def test_what_lost_its_guard_is_ended_and_what_only_has_its_number_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = StateDirectory(tmp_path)
    with (
        subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as left,
        subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True) as other,
    ):
        mine = ProcessStatus("left", State.HEALTHY, left.pid, None, time.time(), 0, 0.0, "")
        reused = ProcessStatus("reused", State.HEALTHY, other.pid, None, time.time() - 3600, 0, 0.0, "")
        state.write(Ports(), [mine, reused])
        state.clear_leftovers()
        assert not psutil.pid_exists(left.pid)
        assert other.poll() is None
    assert "'left'" in caplog.text
    assert "'reused'" not in caplog.text
