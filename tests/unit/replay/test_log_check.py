"""`replay verify` checks the log of events, and says where it is broken."""

from __future__ import annotations

import json

import pytest

from headwater.commands.handling.command_task import heartbeat
from headwater.eventlog.envelope import EPOCH, Position
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.replay import verify
from headwater.replay.comparison import Comparison, Verified
from headwater.replay.verify import SAMPLE, LogFindings, LogProblem, check_log
from tests.unit.replay.played import Stage

PARTITION = 1


def append(log: MemoryLog, *records: tuple[int, int] | int, stream: str = "listing/L1") -> None:
    """Append versions of a stream with their times; without a time, a tombstone."""
    for record in records:
        version, time_ms = record if isinstance(record, tuple) else (record, 0)
        value = b"{}" if time_ms else None
        log.submit(Entry(EVENTS, f"{stream}/{version}", value, time_ms or 99), PARTITION).result()


def counts(findings: LogFindings) -> tuple[int, int, int, int]:
    return findings.repeated.count, findings.out_of_order.count, findings.backwards.count, findings.missing


def checked(*records: tuple[int, int] | int) -> LogFindings:
    log = MemoryLog()
    append(log, *records)
    return check_log(log)


def test_a_log_without_problems_is_sound() -> None:
    log, steps = MemoryLog(), list[Step]()
    append(log, (1, 5), (2, 5), (3, 7))
    log.submit(heartbeat(PARTITION, EPOCH), PARTITION).result()
    append(log, (1, 3), (2, 4), stream="order/a/b/7")
    for key in ("no event", "listing/L1/0", f"listing/L1/{'9' * 5_000}"):
        log.submit(Entry(EVENTS, key, b"x", 1), PARTITION).result()
    append(log, (4, 8))
    findings = check_log(log, steps.append)
    assert (findings.is_sound, findings.records, counts(findings)) == (True, 6, (0, 0, 0, 0))
    assert steps == [Step("log", "check", 0, 10)]


def test_a_transaction_that_was_decided_again_repeats_ids_at_both_positions() -> None:
    log = MemoryLog()
    append(log, (1, 5), (2, 5), (3, 6))
    append(log, (1, 9), stream="listing/L2")
    append(log, (2, 5), (3, 6), (4, 7))
    findings = check_log(log)
    assert not findings.is_sound
    assert counts(findings) == (2, 0, 0, 0)
    assert findings.repeated.sample == [
        LogProblem("listing/L1", 2, Position(1, 4), Position(1, 1)),
        LogProblem("listing/L1", 3, Position(1, 5), Position(1, 2)),
    ]


def test_a_version_after_a_higher_one_is_out_of_order() -> None:
    findings = checked((1, 5), (3, 6), (2, 6), (4, 7))
    assert counts(findings) == (0, 1, 0, 0)
    assert findings.out_of_order.sample == [LogProblem("listing/L1", 2, Position(1, 2), Position(1, 1))]


def test_a_time_may_not_go_back_in_a_stream() -> None:
    findings = checked((1, 5), (2, 4), (3, 4))
    assert counts(findings) == (0, 0, 1, 0)
    assert findings.backwards.sample == [LogProblem("listing/L1", 2, Position(1, 1), Position(1, 0))]


def test_after_a_repeated_id_times_follow_the_later_record() -> None:
    assert counts(checked((1, 5), (2, 8), (2, 6), (3, 7))) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("records", "missing"),
    [
        pytest.param([(1, 5), (2, 6), (3, 7), 2, (4, 7)], 0, id="an erased event that is still there"),
        pytest.param([(1, 5), (3, 7), 2, (4, 7)], 0, id="an erased event that compaction removed"),
        pytest.param([(1, 5), 2, (3, 7), 2, (4, 7)], 0, id="a tombstone that reseal put in its place"),
        pytest.param([(1, 5), (3, 7), (4, 8)], 1, id="a tombstone that compaction removed"),
        pytest.param([1, 2, 3, (4, 8)], 0, id="an erased stream"),
        pytest.param([(4, 8), (5, 8)], 3, id="an erased stream, without tombstones"),
        pytest.param([(1, 5), (2, 6), 2, 2, (3, 5)], 0, id="its owner does not know times of before the tombstone"),
        pytest.param([(1, 5), (3, 4), (4, 3)], 1, id="nor of before a tombstone that is gone"),
    ],
)
def test_erased_events_are_no_problem(records: list[tuple[int, int] | int], missing: int) -> None:
    findings = checked(*records)
    assert (findings.is_sound, counts(findings)) == (True, (0, 0, 0, missing))


def test_an_event_that_comes_back_after_its_tombstone_is_repeated() -> None:
    assert counts(checked((1, 5), (2, 6), 2, (2, 6))) == (1, 0, 0, 0)


def test_a_gap_of_many_versions_takes_no_memory_for_each() -> None:
    assert counts(checked((1, 5), (10**18, 6))) == (0, 0, 0, 10**18 - 2)


def test_of_many_problems_the_first_ones_are_named() -> None:
    log = MemoryLog()
    for _ in range(2):
        append(log, *((version, 5) for version in range(1, 31)))
    findings = check_log(log)
    assert (findings.repeated.count, len(findings.repeated.sample)) == (30, SAMPLE)
    assert [receipt.version for receipt in findings.repeated.sample] == list(range(1, SAMPLE + 1))


def test_verify_fails_on_a_broken_log_with_equal_rows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Verified("listings", 2, 4, [Comparison("postgres", rows=1)])
    monkeypatch.setattr(verify, "verify_view", lambda *_, **__: compared)
    append(stage.log, (1, 5), (2, 6))
    done = stage.run("verify", "listings")
    assert (done.code, done.out.splitlines()[0]) == (
        0,
        "log: 2 records checked, 0 ids repeated, 0 versions out of order, 0 times going back",
    )
    append(stage.log, (2, 6), (4, 6))
    done = stage.run("verify", "listings")
    assert done.code == verify.DIFFERENT_EXIT
    assert done.out.splitlines()[:3] == [
        "log: 4 records checked, 1 ids repeated, 0 versions out of order, 0 times going back; "
        "1 versions missing, such as of erased events",
        "problem\tstream\tversion\tposition\tearlier record",
        "repeated id\tlisting/L1\t2\t1:2\t1:1",
    ]
    assert verify.LOG_ADVICE in done.out
    assert "listings in postgres: 1 rows compared, 0 differ" in done.out
    done = stage.run("verify", "--all", "--json")
    assert done.code == verify.DIFFERENT_EXIT
    none = {"count": 0, "sample": []}
    repeated = {"stream": "listing/L1", "version": 2, "position": "1:2", "earlier": "1:1"}
    assert json.loads(done.out)["log"] == {
        "records": 4,
        "missing": 1,
        "repeated": {"count": 1, "sample": [repeated]},
        "out_of_order": none,
        "backwards": none,
    }
