"""Supervision of small real processes: restart, give up, order, stop, and no orphans."""

import logging
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.eventlog.programs.backoff import RETRY_FOREVER, Backoff
from headwater.projections.supervision.process import ProcessSpec, StartFailed, State, SupervisionError, cpu_s
from headwater.projections.supervision.supervised import Supervisor
from tests.support.waiting import eventually

pytestmark = pytest.mark.programs

supervised = logging.getLogger("headwater.projections.supervision.supervised")

LIMIT, LIMIT_AT_FIRST = 3, 2
LONG_S = 240.0
"""For what takes a moment, unless the machine stands still."""
QUICK = Backoff(first_s=0.01, max_s=LONG_S, limit=LIMIT, limit_at_first=LIMIT_AT_FIRST)
# it says that it has started once it can be asked to stop
READY_THEN_WAIT = "trap 'echo cleanly >> runs; exit 0' TERM; echo started >> runs; while :; do sleep 0.05; done"


def spec(folder: Path, script: str = READY_THEN_WAIT, name: str = "child", **changes: Any) -> ProcessSpec:
    begun = list[bool]()
    settings = ProcessSpec(
        name=name,
        argv=("/bin/sh", "-c", script),
        cwd=folder,
        log=folder / "logs" / f"{name}.log",
        prepare=lambda: begun.append(True),
        probe=lambda: has_started(folder, len(begun)),
        start_timeout_s=LONG_S,
        stop_timeout_s=LONG_S,
    )
    return replace(settings, **changes)


def has_started(folder: Path, starts: int = 1) -> str | None:
    """The answer of a probe. starts: how often it must have said so; what an earlier start has said does not count."""
    said = runs(folder).count("started") if (folder / "runs").exists() else 0
    return None if said >= starts else "it has not said that it started"


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().split()


def child(supervisor: Supervisor) -> int:
    """The id of the process that it runs."""
    pid = supervisor["child"].status.pid
    assert pid is not None
    return pid


def gone(pids: list[int]) -> bool:
    processes = [process for process in psutil.process_iter() if process.pid in pids]
    return not psutil.wait_procs(processes, timeout=240)[1]


def test_a_process_is_asked_to_stop_and_leaves_cleanly(tmp_path: Path) -> None:
    supervisor = Supervisor([spec(tmp_path)], QUICK)
    supervisor.start()
    pid = child(supervisor)
    supervisor.stop()
    assert runs(tmp_path) == ["started", "cleanly"]
    assert supervisor["child"].status.state is State.STOPPED
    assert gone([pid])


def test_a_process_that_will_not_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = "trap '' TERM; sleep 600 & echo $! > sleeper; echo started >> runs; while :; do wait; done"
    supervisor = Supervisor([spec(tmp_path, stubborn, stop_timeout_s=0.2)], QUICK)
    supervisor.start()
    pid = child(supervisor)
    supervisor.stop()
    assert gone([pid, int((tmp_path / "sleeper").read_text())])


def test_a_killed_process_is_restarted_and_the_restart_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor([spec(tmp_path)], QUICK)
    supervisor.start()
    try:
        before = supervisor["child"].status
        supervisor["child"].kill()
        supervisor["child"].wait_healthy()
        after = supervisor["child"].status
    finally:
        supervisor.stop()
    assert after.pid != before.pid
    assert after.restarts == 1
    assert runs(tmp_path) == ["started", "started", "cleanly"]
    assert "'child' was killed by SIGKILL; restart 1" in caplog.text


def test_a_clean_restart_needs_no_backoff(tmp_path: Path) -> None:
    slow = Backoff(first_s=LONG_S, max_s=LONG_S)
    supervisor = Supervisor([spec(tmp_path)], slow)
    supervisor.start()
    began = supervisor["child"].status.started
    try:
        supervisor["child"].restart()
        again = supervisor["child"].status.started
    finally:
        supervisor.stop()
    assert runs(tmp_path) == ["started", "cleanly", "started", "cleanly"]
    assert began is not None
    assert again is not None
    assert again - began < slow.first_s


def test_a_process_that_never_starts_is_given_up_with_reason_and_log(tmp_path: Path) -> None:
    supervisor = Supervisor([spec(tmp_path, "echo no >> tries; exit 3")], QUICK)
    with pytest.raises(StartFailed, match=r"exited with status 3.*child\.log"):
        supervisor.start()
    assert (tmp_path / "tries").read_text().count("no") == 1 + LIMIT_AT_FIRST


JSON_ERROR = '{"time": "2026-11-25T19:00:00.123Z", "level": "ERROR", "message": "it has no store: add one"}'
JSON_STOPPED = '{"time": "2026-11-25T19:00:00.124Z", "level": "INFO", "message": "stopped"}'
JSON_PYTHON = '{"level": "CRITICAL", "message": "ended by an error", "error": "Traceback:\\n  File x\\nKeyError: 1"}'
JSON_JAVA = '{"level": "ERROR", "message": "the query failed", "error": "java.E: no disk\\n\\tat A\\n\\t... 3 more\\n"}'
ERROR = "2026-11-25 19:00:00,123 ERROR commands kiosk/views.py:3: it has no store: add one"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"echo '{ERROR}'; exit 1", "exited with status 1: kiosk/views.py:3: it has no store: add one"),
        (f"echo '{ERROR}'; echo '2026-11-25 19:00:00,124 INFO commands stopped'; exit 1", "has no store: add one"),
        (f"echo '{JSON_ERROR}'; echo '{JSON_STOPPED}'; exit 1", "exited with status 1: it has no store: add one"),
        (f"printf '%s\\n' '{JSON_PYTHON}'; exit 1", "exited with status 1: ended by an error: KeyError: 1"),
        (f"printf '%s\\n' '{JSON_JAVA}'; exit 1", "exited with status 1: the query failed: java.E: no disk"),
        ("echo '{no JSON'; exit 1", "exited with status 1: {no JSON"),
        ("echo 'the API cannot start: no port'; exit 2", "exited with status 2: the API cannot start: no port"),
        (
            f"echo '{ERROR}'; echo '  - old'; printf '\\t+ new\\n\\n'; exit 1",
            "status 1: kiosk/views.py:3: it has no store: add one",
        ),
        ("echo 'Traceback (most recent'; echo ' File x'; echo 'KeyError: 1'; echo; exit 1", "status 1: KeyError: 1"),
        ("head -c 5000000 /dev/zero | tr '\\0' x; exit 1", f"status 1: {'x' * 499}…"),
        ("printf '\\377\\376\\033[31m bad'; exit 1", "status 1: \ufffd\ufffd [31m bad"),
        ("exit 4", "exited with status 4"),
    ],
)
def test_a_process_that_ends_says_why_as_its_log_does(tmp_path: Path, script: str, reason: str) -> None:
    log = tmp_path / "logs" / "child.log"
    log.parent.mkdir()
    log.write_text("2026-11-25 18:00:00,123 ERROR commands of an earlier start\n")
    supervisor = Supervisor([spec(tmp_path, script)], Backoff(limit=0, limit_at_first=0))
    with pytest.raises(StartFailed) as failed:
        supervisor.start()
    assert f"{reason}; its log is" in str(failed.value)
    assert "earlier" not in str(failed.value)


def test_why_a_process_ends_is_said_also_if_its_log_is_gone(tmp_path: Path) -> None:
    supervisor = Supervisor([spec(tmp_path, "rm logs/child.log; exit 4")], Backoff(limit=0, limit_at_first=0))
    with pytest.raises(StartFailed, match="exited with status 4; its log is"):
        supervisor.start()


def test_a_process_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    given_up = threading.Event()

    def watch() -> None:
        if supervisor["child"].status.state is State.FAILED:
            given_up.set()

    dies = "echo started >> runs; until test -e dies; do sleep 0.02; done; exit 1"
    supervisor = Supervisor([spec(tmp_path, dies)], QUICK, watch)
    supervisor.start()
    (tmp_path / "dies").touch()
    try:
        assert given_up.wait(240)
    finally:
        supervisor.stop()
    assert len(runs(tmp_path)) == 1 + LIMIT


def test_without_a_limit_a_process_that_dies_early_again_and_again_is_never_given_up(tmp_path: Path) -> None:
    dies_at_first = f"echo try >> tries; [ $(wc -l < tries) -gt 6 ] || exit 1; {READY_THEN_WAIT}"
    once = spec(tmp_path, dies_at_first, probe=lambda: has_started(tmp_path))
    supervisor = Supervisor([once], replace(RETRY_FOREVER, first_s=0.01, max_s=0.02))
    supervisor.start()
    try:
        assert supervisor["child"].status.restarts == 6
        assert supervisor.is_healthy
    finally:
        supervisor.stop()


def test_the_wait_before_a_restart_is_bounded_however_many_there_were() -> None:
    assert RETRY_FOREVER.wait_s(0) == RETRY_FOREVER.first_s
    assert RETRY_FOREVER.wait_s(100_000) == RETRY_FOREVER.max_s


def test_a_process_that_waits_for_another_is_not_called_late(tmp_path: Path) -> None:
    held = iter([True, True, True])
    late = spec(tmp_path, "sleep 600", start_timeout_s=0.0, held=lambda: next(held, False))
    supervisor = Supervisor([late], replace(QUICK, limit_at_first=0))
    with pytest.raises(StartFailed, match="it has not said that it started"):
        supervisor.start()
    assert next(held, None) is None, "the time to start ran only after it was let go"


def test_a_restart_can_be_begun_without_waiting_for_its_end(tmp_path: Path) -> None:
    supervisor = Supervisor([spec(tmp_path)], replace(QUICK, first_s=10.0, max_s=10.0))
    supervisor["child"].begin_restart()  # does not run: nothing to restart
    supervisor.begin("child")
    try:
        supervisor["child"].wait_healthy()
        pid = supervisor["child"].status.pid
        supervisor["child"].begin_restart()
        eventually(lambda: supervisor["child"].status.pid not in (None, pid), "it runs again")
        # its process is there before its first line
        eventually(lambda: runs(tmp_path) == ["started", "cleanly", "started"], "it has ended cleanly in between")
    finally:
        supervisor.stop()


def test_a_program_that_changes_while_its_process_is_given_up_is_started_again(tmp_path: Path) -> None:
    """The log says that it is given up just before its state does."""
    (tmp_path / "broken").touch()
    mended = f"test ! -e broken || exit 3; {READY_THEN_WAIT}"
    supervisor = Supervisor([spec(tmp_path, mended, probe=lambda: has_started(tmp_path))], QUICK)

    class Mends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "giving up" in record.getMessage():
                (tmp_path / "broken").unlink()
                supervisor["child"].renew()

    supervised.addHandler(mends := Mends())
    try:
        supervisor.begin("child")
        supervisor["child"].wait_healthy()
    finally:
        supervised.removeHandler(mends)
        supervisor.stop()
    assert runs(tmp_path) == ["started", "cleanly"]


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="'/no/such/program' does not run"):
        Supervisor([spec(tmp_path, argv=("/no/such/program",))], QUICK).start()


def test_a_process_that_is_never_ready_is_given_up_with_the_probes_reason(tmp_path: Path) -> None:
    never = spec(tmp_path, "sleep 600", start_timeout_s=0.2)
    with pytest.raises(StartFailed, match="did next to nothing for 0 s: it has not said that it started"):
        Supervisor([never], QUICK).start()


def test_a_process_that_works_is_given_all_the_time_that_its_start_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Spark on a busy machine, where a new start would take as long again."""
    checks = list[float]()

    def works(_: int) -> float:
        checks.append(10.0 * len(checks) + 10.0)
        if len(checks) == 3:
            (tmp_path / "begin").touch()
        return checks[-1]

    monkeypatch.setattr("headwater.projections.supervision.supervised.cpu_s", works)
    script = f"while [ ! -e begin ]; do sleep 0.02; done; {READY_THEN_WAIT}"
    # at the third check it has time for its last step
    slow = spec(tmp_path, script, probe=lambda: has_started(tmp_path), start_timeout_s=0.2)
    supervisor = Supervisor([slow], QUICK)
    supervisor.start()
    supervisor.stop()
    assert runs(tmp_path) == ["started", "cleanly"]


def test_the_work_of_a_process_is_that_of_its_children_too(tmp_path: Path) -> None:
    working = subprocess.Popen(["/bin/sh", "-c", "sh -c 'while :; do :; done' & echo; wait"], start_new_session=True)
    try:
        eventually(lambda: cpu_s(working.pid) > 0.05, "the loop of its child has used that")
    finally:
        os.killpg(working.pid, signal.SIGKILL)
        working.wait()
    assert cpu_s(working.pid) == 0.0


def test_a_probe_with_a_defect_fails_the_start(tmp_path: Path) -> None:
    def probe() -> str | None:
        raise ZeroDivisionError

    supervisor = Supervisor([spec(tmp_path, probe=probe)], QUICK)
    with pytest.raises(StartFailed, match="ZeroDivision"):
        supervisor.start()
    assert supervisor["child"].status.pid is None


def test_processes_start_after_those_they_need_and_stop_before_them(tmp_path: Path) -> None:
    def step(name: str, stop_takes_s: float, **changes: Any) -> ProcessSpec:
        leave = f"sleep {stop_takes_s}; echo {name} >> order; exit"
        script = f"trap '{leave}' TERM; echo {name} >> order; touch {name}; "
        return spec(
            tmp_path,
            script + "while :; do sleep 0.02; done",
            name=name,
            probe=lambda: None if (tmp_path / name).exists() else "not yet",
            **changes,
        )

    steps = [step("third", 0.3, after=("second",)), step("second", 0.1, after=("first",)), step("first", 0)]
    supervisor = Supervisor(steps, QUICK)
    supervisor.start()
    supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["first", "second", "third", "third", "second", "first"]


def test_processes_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SupervisionError, match="wait for each other"):
        Supervisor([spec(tmp_path, name="a", after=("b",)), spec(tmp_path, name="b", after=("a",))])


def test_a_process_without_its_guard_is_killed_and_restarted(tmp_path: Path) -> None:
    supervisor = Supervisor([spec(tmp_path)], QUICK)
    supervisor.start()
    status = supervisor["child"].status
    assert status.pid is not None
    assert status.guard is not None
    os.kill(status.guard, signal.SIGKILL)
    assert gone([status.pid])
    eventually(lambda: supervisor["child"].status.pid not in (None, status.pid), "another process")
    supervisor.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_supervisor_leaves_no_orphans(tmp_path: Path, how: signal.Signals) -> None:
    program = f"""
import signal, sys
sys.path[:0] = {[str(Path.cwd()), str(Path(__file__).parent)]}
from test_supervision import *
supervisor = Supervisor([spec(Path({str(tmp_path)!r}))], QUICK)
supervisor.start()
status = supervisor["child"].status
print(status.pid, status.guard, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        owner.send_signal(how)
    assert len(pids) == 2
    assert gone(pids)
    assert runs(tmp_path) == ["started", "cleanly"]
