"""The contract of the EventLog port, on memory and on Kafka."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import EventLogError, Fenced, LeftOpen, LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import HANDLER, ROUTER, Entry, EventLog, abort_on_error
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import (
    COMMANDS,
    COMPACTION_LAG,
    DAY_MS,
    DEAD_LETTERS,
    ERASED_DAYS,
    EVENTS,
    FOR_EVER,
    INBOX,
    RECEIPTS,
    RESEALING,
    RETENTION,
    RETENTION_BYTES,
    SNAPSHOTS,
    STARTS,
    UNLIMITED,
    topic_specs,
    view_topic,
)
from tests.support.ordered_producer import ordered_producer, stored
from tests.support.waiting import BOUND_S, eventually


@pytest.fixture(params=["memory", "kafka"])
def log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventLog]:
    if request.param == "memory":
        yield MemoryLog(partitions=2)
        return
    # what a test looks at while a transaction is open may take longer than Kafka leaves it open in production
    monkeypatch.setattr("headwater.eventlog.kafka.writer.TRANSACTION_TIMEOUT_MS", int(BOUND_S * 1000))
    kafka = KafkaLog(request.getfixturevalue("log_settings"))
    yield kafka
    kafka.close()


NOW_MS = time.time_ns() // 1_000_000
"""Kafka deletes older receipts than are to be kept."""


def entry(key: str, value: bytes | None = b"{}", topic: str = EVENTS, timestamp_ms: int = NOW_MS) -> Entry:
    return Entry(topic, key, value, timestamp_ms)


def keys(log: EventLog, topic: str = EVENTS, partition: int = 0, start: int = 0, end: int | None = None) -> list[str]:
    return [record.key for record in log.read(topic, partition, start, end)]


def transactional_stranger(settings: LogSettings) -> Producer:
    """A producer that is none of the log's. Kafka does not end its transactions while a test looks at them."""
    unknown = {"transactional.id": f"{uuid.uuid4()}", "transaction.timeout.ms": int(BOUND_S * 1000)}
    return ordered_producer(settings.bootstrap, **unknown)


def settle(log: EventLog, partition: int = 0) -> None:
    """Kafka makes a committed transaction visible shortly after; a new owner waits for that."""
    log.own(partition).close()


def test_an_empty_partition_has_no_records_and_ends_at_zero(log: EventLog) -> None:
    assert keys(log) == []
    assert log.end(EVENTS, 0) == 0
    assert log.next_offset(0) == 0


def test_a_committed_transaction_is_read_back_as_it_was_appended(log: EventLog) -> None:
    transaction = log.own(1).begin()
    offsets = transaction.append([entry("a", b"1", timestamp_ms=5), entry("ü/\udcff", None, timestamp_ms=7)])
    transaction.commit(next_offset=3)
    settle(log, 1)
    records = list(log.read(EVENTS, 1, 0))
    assert [(r.topic, r.partition, r.offset) for r in records] == [(EVENTS, 1, offset) for offset in offsets]
    assert [(r.key, r.value, r.timestamp_ms) for r in records] == [("a", b"1", 5), ("ü/\udcff", None, 7)]
    assert keys(log, partition=0) == []


def test_any_range_is_read_whole_by_a_reader_that_has_no_connection_yet(log_settings: LogSettings) -> None:
    with closing(KafkaLog(log_settings)) as log:
        transaction = log.own(0).begin()
        transaction.append([entry(name) for name in "abcd"])
        transaction.commit()
        settle(log)
        end = log.end(EVENTS, 0)  # after the marker of the commit
    for start in range(5):
        for last in range(start, end + 1):
            with closing(KafkaLog(log_settings)) as fresh:
                assert keys(fresh, start=start, end=last) == list("abcd")[start:last]


def test_nothing_of_an_open_transaction_is_seen(log: EventLog) -> None:
    transaction = log.own(0).begin()
    transaction.append([entry("a")])
    assert keys(log) == []
    assert log.end(EVENTS, 0) == 0
    transaction.commit()
    settle(log)
    assert keys(log) == ["a"]


def test_the_stored_ends_count_what_is_not_committed(log: EventLog) -> None:
    assert not any(log.stored_ends(EVENTS).values())
    assert log.stored_ends("cdc.none.transaction") == {}
    transaction = log.own(1).begin()
    transaction.append([entry("a")])
    eventually(lambda: log.stored_ends(EVENTS) == {0: 0, 1: 1}, "the record is stored")
    assert log.end(EVENTS, 1) == 0
    transaction.commit()
    settle(log, 1)
    assert log.stored_ends(EVENTS) == {0: 0, 1: log.end(EVENTS, 1)}


def test_nothing_of_an_aborted_transaction_is_ever_seen(log: EventLog) -> None:
    writer = log.own(0)
    aborted = writer.begin()
    aborted.append([entry("a"), entry("r", topic=RECEIPTS)])
    aborted.abort()
    committed = writer.begin()
    committed.append([entry("b")])
    committed.commit(next_offset=1)
    settle(log)
    assert keys(log) == ["b"]
    assert keys(log, RECEIPTS) == []
    assert log.next_offset(0) == 1


def test_offsets_tell_each_record_of_several_topics(log: EventLog) -> None:
    writer = log.own(0)
    first = writer.begin()
    first.append([entry("x")])
    first.commit()
    transaction = writer.begin()
    entries = [entry(str(n)) for n in range(1_500)] + [entry(f"r{n}", topic=RECEIPTS) for n in range(3)]
    offsets = transaction.append(entries) + transaction.append([entry("late")])
    transaction.commit()
    settle(log)
    found = {(r.topic, r.offset): r.key for topic in (EVENTS, RECEIPTS) for r in log.read(topic, 0, 0)}
    for appended, offset in zip([*entries, entry("late")], offsets, strict=True):
        assert found[appended.topic, offset] == appended.key


def test_a_time_tells_an_offset_before_which_nothing_is_as_late(log: EventLog) -> None:
    transaction = log.own(0).begin()
    offsets = transaction.append([entry(str(time), timestamp_ms=time) for time in (100, 300, 200, 400)])
    transaction.commit()
    settle(log)
    assert [log.offset_at(EVENTS, 0, time) for time in (1, 100, 101, 200, 301)] == [offsets[i] for i in (0, 0, 1, 1, 3)]
    assert keys(log, start=log.offset_at(EVENTS, 0, 401)) == []
    assert log.offset_at(EVENTS, 1, 1) == 0


@pytest.mark.parametrize("time_ms", [0, -1, -2, -3, -62_135_596_800_000])
def test_a_time_before_1970_tells_the_beginning(log: EventLog, time_ms: int) -> None:
    transaction = log.own(0).begin()
    (offset, _) = transaction.append([entry("first", timestamp_ms=100), entry("second", timestamp_ms=200)])
    transaction.commit()
    settle(log)
    assert log.offset_at(EVENTS, 0, time_ms) == offset


def test_a_time_at_the_end_of_time_tells_the_end(log: EventLog) -> None:
    transaction = log.own(0).begin()
    transaction.append([entry("first", timestamp_ms=100)])
    transaction.commit()
    settle(log)
    assert log.offset_at(EVENTS, 0, 253_402_300_799_999) == log.end(EVENTS, 0)


def test_a_read_stops_at_its_end_and_starts_where_it_is_told(log: EventLog) -> None:
    writer = log.own(0)
    for name in "abc":
        transaction = writer.begin()
        transaction.append([entry(name), entry(name + name)])
        transaction.commit()
    settle(log)
    records = list(log.read(EVENTS, 0, 0))
    assert [r.key for r in records] == ["a", "aa", "b", "bb", "c", "cc"]
    assert keys(log, start=records[1].offset, end=records[4].offset) == ["aa", "b", "bb"]
    assert keys(log, start=records[5].offset + 1) == []
    assert log.end(EVENTS, 0) > records[5].offset


def test_a_read_ends_though_the_last_offsets_are_of_an_aborted_transaction(log: EventLog) -> None:
    writer = log.own(0)
    for outcome in ("commit", "abort", "abort"):
        transaction = writer.begin()
        transaction.append([entry(outcome)])
        getattr(transaction, outcome)()
    settle(log)
    assert keys(log) == ["commit"]
    assert keys(log, start=1) == []


def test_a_new_owner_fences_the_earlier_one_off(log: EventLog) -> None:
    idle = log.own(0)
    earlier = log.own(0)
    open_transaction = earlier.begin()
    open_transaction.append([entry("lost")])
    later = log.own(0)
    with pytest.raises(Fenced):
        open_transaction.commit(next_offset=1)
    with pytest.raises(Fenced):
        again = idle.begin()
        again.append([entry("lost too")])
        again.commit(next_offset=2)
    transaction = later.begin()
    transaction.append([entry("kept")])
    transaction.commit(next_offset=3)
    settle(log)
    assert keys(log) == ["kept"]
    assert log.next_offset(0) == 3


def test_of_two_racing_writers_every_acknowledged_commit_is_kept_and_no_other(log: EventLog) -> None:
    kept: list[str] = []
    start = threading.Barrier(2)

    def write(name: str) -> None:
        start.wait()
        for attempt in range(3):
            try:
                writer = log.own(0)
                for number in range(10):
                    transaction = writer.begin()
                    key = f"{name}/{attempt}/{number}"
                    try:
                        transaction.append([entry(key)])
                        transaction.commit()
                    except EventLogError:
                        transaction.abort()
                        raise
                    kept.append(key)
            except EventLogError:
                continue

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, "ab"))
    settle(log)
    read = keys(log)
    assert sorted(set(kept) - set(read)) == []
    assert len(read) == len(set(read))
    for name in "ab":
        mine = [key for key in read if key.startswith(name)]
        assert mine == sorted(mine)


def test_dead_letters_of_every_partition_lie_in_one(log: EventLog) -> None:
    for partition in (0, 1):
        transaction = log.own(partition).begin()
        transaction.append([entry(f"from {partition}", topic=DEAD_LETTERS)])
        transaction.commit()
        settle(log, partition)
    assert keys(log, DEAD_LETTERS) == ["from 0", "from 1"]


def test_roles_own_the_same_partition_side_by_side_and_go_on_from_offsets_of_their_own(log: EventLog) -> None:
    handler, router = log.own(0), log.own(0, ROUTER)
    for writer, offset, topic in ((handler, 3, EVENTS), (router, 5, INBOX), (handler, 4, EVENTS)):
        transaction = writer.begin()
        transaction.append([entry("a", topic=topic)])
        transaction.commit(next_offset=offset)
    log.own(0, ROUTER).close()
    settle(log)
    assert (log.next_offset(0), log.next_offset(0, ROUTER)) == (4, 5)
    assert (keys(log), keys(log, INBOX, partition_of("a", 2))) == (["a", "a"], ["a"])
    with pytest.raises(Fenced):
        router.begin().append([entry("b", topic=INBOX)])


def test_the_offset_to_go_on_from_is_found_behind_much_that_came_after_it(log: EventLog) -> None:
    writer = log.own(0)
    for offset in (7, None):
        transaction = writer.begin()
        transaction.append([entry(f"{offset}/{n}", topic=SNAPSHOTS) for n in range(2_000)])
        transaction.commit(next_offset=offset)
    aborted = writer.begin()
    aborted.append([entry("lost", topic=SNAPSHOTS)])
    aborted.abort()
    settle(log)
    assert log.next_offset(0) == 7
    assert log.next_offset(1) == 0


def test_commands_of_a_transaction_go_to_the_partitions_of_their_streams(log: EventLog) -> None:
    streams = [f"listing/L{n}" for n in range(20)]
    transaction = log.own(0).begin()
    offsets = transaction.append([entry(stream, topic=COMMANDS) for stream in streams])
    transaction.commit()
    settle(log)
    found = {(r.key, r.partition, r.offset) for p in (0, 1) for r in log.read(COMMANDS, p, 0)}
    wanted = {(s, partition_of(s, 2), offset) for s, offset in zip(streams, offsets, strict=True)}
    assert found == wanted
    assert {partition for _, partition, _ in found} == {0, 1}


def test_each_topic_is_told_from_every_other(log: EventLog) -> None:
    assert log.incarnation(EVENTS) == log.incarnation(EVENTS)
    assert log.incarnation(EVENTS) != log.incarnation(RECEIPTS)
    assert log.incarnation(EVENTS) != MemoryLog(2).incarnation(EVENTS)


def test_submitted_commands_are_stored_in_order(log: EventLog) -> None:
    stored = [log.submit(entry(f"c{n}", topic=COMMANDS), 1) for n in range(5)]
    failed: list[LogUnavailable] = []
    log.send([entry(f"c{n}", topic=COMMANDS) for n in (5, 6)], 1, failed.append)
    stored.append(log.submit(entry("c7", topic=COMMANDS), 1))
    assert [future.result(240) for future in stored] == [0, 1, 2, 3, 4, 7]
    assert keys(log, COMMANDS, 1) == [f"c{n}" for n in range(8)]
    for first in range(0, 30, 3):  # of the same partition, and they may wait for each other
        log.send([entry(f"d{n}", topic=COMMANDS) for n in range(first, first + 3)], 1, failed.append)
    eventually(lambda: keys(log, COMMANDS, 1)[8:] == [f"d{n}" for n in range(30)])
    assert failed == []


def test_a_record_of_the_year_1970_is_not_of_now(log: EventLog) -> None:
    for n in range(3):
        log.submit(entry(f"c{n}", topic=COMMANDS, timestamp_ms=n), 0).result(240)
    transaction = log.own(0).begin()
    transaction.append([entry("e", timestamp_ms=0)])
    transaction.commit()
    settle(log)
    assert [record.timestamp_ms for record in log.read(COMMANDS, 0, 0)] == [1, 1, 2]
    assert [record.timestamp_ms for record in log.read(EVENTS, 0, 0)] == [1]


def test_a_tail_gives_what_is_there_and_what_comes_and_tells_its_position(log: EventLog) -> None:
    writer = log.own(0)
    first = writer.begin()
    first.append([entry("skipped"), entry("a"), entry("b")])
    first.commit()
    tail = log.tail(EVENTS, {0: 1, 1: 0})
    try:
        assert take(log, tail, 2) == ["a", "b"]
        second = writer.begin()
        second.append([entry("c")])
        assert tail.poll(10, 0.05) == []
        second.commit()
        assert take(log, tail, 1) == ["c"]

        def has_passed_the_mark() -> bool:
            assert tail.poll(10, 0.1) == []
            return tail.position(0) == log.end(EVENTS, 0)

        eventually(has_passed_the_mark, "it has passed the mark of the commit")
    finally:
        tail.close()


def test_a_tail_returns_no_more_than_it_is_asked_for(log: EventLog) -> None:
    for number in range(5):
        log.submit(entry(str(number), topic=COMMANDS), 0).result(240)
    tail = log.tail(COMMANDS, {0: 0})
    got: list[str] = []
    for _ in range(2_400):
        some = tail.poll(2, 0.1)
        assert len(some) <= 2
        got += [record.key for record in some]
        if len(got) >= 5:
            break
    tail.close()
    assert got == ["0", "1", "2", "3", "4"]


def test_members_share_the_partitions_and_the_one_who_leaves_frees_its_own(log: EventLog) -> None:
    first = log.join(lambda partitions: None)
    assert owns_all(log, first)
    second = log.join(lambda partitions: None)
    second.poll(0.01)
    closing = threading.Thread(target=first.close)
    closing.start()
    assert owns_all(log, second)
    closing.join()
    second.close()


def take(log: EventLog, tail: object, count: int) -> list[str]:
    got: list[str] = []
    for _ in range(2_400):
        got += [record.key for record in tail.poll(100, 0.1)]  # type: ignore[attr-defined]
        if len(got) >= count:
            break
    return got


def owns_all(log: EventLog, member: object) -> bool:
    return any(member.poll(0.1) == frozenset(range(log.partitions)) for _ in range(2_400))  # type: ignore[attr-defined]


def test_a_partition_whose_leader_is_away_for_a_moment_is_owned_nevertheless(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Kafka asks for it; a leader that is away for so short a time is made here, by the first two answers."""
    answers: list[object] = []

    def away_twice(*asked: Any) -> Any:
        answers.append(LogUnavailable("asking", "a test") if len(answers) < 2 else admin.ends(*asked))
        if isinstance(answers[-1], LogUnavailable):
            raise answers[-1]
        return answers[-1]

    monkeypatch.setattr("headwater.eventlog.kafka.log.ends", away_twice)
    log = KafkaLog(log_settings)
    try:
        log.own(0).close()
        assert answers[2] == ({topic: 0 for topic in HANDLER.owns},) * 2
        answers.clear()
        monkeypatch.setattr("headwater.eventlog.kafka.log.ENDED_S", 0.0)
        with pytest.raises(LogUnavailable, match="a test"):
            log.own(0)
    finally:
        log.close()


def test_nobody_writes_to_a_partition_where_the_log_lost_the_end_of_a_transaction(log_settings: LogSettings) -> None:
    """Only Kafka can; made here by a stranger's open transaction, which looks the same to a new owner."""
    stranger = transactional_stranger(log_settings)
    stranger.init_transactions(60)
    stranger.begin_transaction()
    stranger.produce(log_settings.topic(EVENTS), b"{}", "lost", 0)
    stored(stranger)
    log = KafkaLog(log_settings)
    try:
        log.own(1).close()
        with pytest.raises(LeftOpen, match=f"--topic {log_settings.topic(EVENTS)} --partition 0 --start-offset 0"):
            log.own(0)
        stranger.abort_transaction(60)
        log.own(0).close()
    finally:
        log.close()


def test_what_a_stranger_pushed_to_other_offsets_than_foretold_is_not_committed(log_settings: LogSettings) -> None:
    """Only Kafka has strangers."""
    log = KafkaLog(log_settings)
    try:
        writer = log.own(0)
        for at, key in enumerate(("a", "b")):
            transaction = writer.begin()
            assert transaction.append([entry(key)]) == [2 * at]  # a commit's mark has an offset too
            transaction.commit()
        stranger = ordered_producer(log_settings.bootstrap)
        stranger.produce(log_settings.topic(EVENTS), b"{}", "stranger", 0)
        stored(stranger)
        pushed = writer.begin()
        assert pushed.append([entry("c")]) == [4]
        with pytest.raises(LogUnavailable, match="another process wrote"):
            pushed.commit()
        pushed.abort()
        settle(log)
        assert keys(log) == ["a", "b", "stranger"]
    finally:
        log.close()


def test_heartbeats_of_others_between_an_owners_records_do_no_harm(log_settings: LogSettings) -> None:
    """Only Kafka has others; the live query appends to the topic of a view that views read."""
    log = KafkaLog(log_settings)
    try:
        writer = log.own(0, HANDLER._replace(with_heartbeats=(EVENTS,)))
        other = ordered_producer(log_settings.bootstrap)
        for number, key in enumerate(("a", "b", "c")):
            with abort_on_error(writer.begin()) as begun:
                assert begun.append([entry(key), entry(key)]) == [4 * number, 4 * number + 1]
                begun.commit()
            other.produce(log_settings.topic(EVENTS), b"{}", "heartbeat", 0)
            stored(other)
    finally:
        log.close()


def test_a_reader_behind_a_transaction_that_was_forgotten_says_so(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only Kafka can; it is looked at sooner here than in production, and the transaction is a stranger's."""
    monkeypatch.setattr("headwater.eventlog.kafka.tail.OPEN_S", 0.0)
    stranger = transactional_stranger(log_settings)
    stranger.init_transactions(60)
    log = KafkaLog(log_settings)
    tail = log.tail(INBOX, {0: 0})
    try:
        log.submit(entry("read", topic=INBOX), 0).result(240)
        assert take(log, tail, 1) == ["read"]
        for _ in range(3):
            assert tail.poll(10, 0.1) == []
        assert "open transaction" not in caplog.text
        stranger.begin_transaction()
        stranger.produce(log_settings.topic(INBOX), b"{}", "lost", 0)
        stored(stranger)
        log.submit(entry("behind it", topic=INBOX), 0).result(240)
        eventually(lambda: not tail.poll(10, 0.1) and "open transaction at offset 1" in caplog.text)
        assert f"abort --topic {log_settings.topic(INBOX)} --partition 0 --start-offset 1" in caplog.text
        stranger.abort_transaction(60)
        assert take(log, tail, 1) == ["behind it"]
    finally:
        tail.close()
        log.close()


def test_a_reader_whose_place_was_deleted_does_not_go_on_as_if_nothing_was_lost(log_settings: LogSettings) -> None:
    """Kafka may delete while a tail reads, too; `first` says where to go on."""
    log = KafkaLog(log_settings)
    try:
        for number in range(6):
            log.submit(entry(f"c{number}", topic=COMMANDS), 0).result(240)
        client = AdminClient({"bootstrap.servers": log_settings.bootstrap})
        place = TopicPartition(log_settings.topic(COMMANDS), 0, 4)
        for deleted in client.delete_records([place]).values():
            deleted.result()
        assert log.first(COMMANDS, 0) == 4
        with closing(log.tail(COMMANDS, {0: 2})) as lost, pytest.raises(LogUnavailable, match="offsets 2 to 3"):
            take(log, lost, 1)
        for start, kept in ((0, ["c4", "c5"]), (4, ["c4", "c5"]), (5, ["c5"]), (9, ["c4", "c5"])):
            with closing(log.tail(COMMANDS, {0: start})) as tail:
                assert take(log, tail, len(kept)) == kept, start
    finally:
        log.close()


def test_topics_with_other_settings_remove_what_is_erased_within_the_promised_time(
    log_settings: LogSettings,
) -> None:
    """Only Kafka keeps erased records. A shorter time that an operator has set stays, if records are erased there."""
    client = AdminClient({"bootstrap.servers": log_settings.bootstrap})

    def resource(topic: str, *changes: ConfigEntry) -> ConfigResource:
        return ConfigResource(ResourceType.TOPIC, log_settings.topic(topic), incremental_configs=list(changes))

    def await_setting(topic: str, setting: str, expected: str) -> None:
        """A broker that has taken a change may tell the old value for a moment."""
        asked = resource(topic)
        eventually(lambda: client.describe_configs([asked])[asked].result()[setting].value == expected)

    for topic, setting, value in (
        (EVENTS, COMPACTION_LAG, str(2**63 - 1)),
        (SNAPSHOTS, COMPACTION_LAG, "3600000"),
        (STARTS, RETENTION, str(7 * DAY_MS)),
        (RECEIPTS, RETENTION_BYTES, "1073741824"),
        (COMMANDS, RETENTION_BYTES, "1073741824"),
    ):
        change = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        for altered in client.incremental_alter_configs([resource(topic, change)]).values():
            altered.result()
        await_setting(topic, setting, value)
    admin.prepare(log_settings)
    await_setting(EVENTS, COMPACTION_LAG, str(ERASED_DAYS * DAY_MS))
    await_setting(SNAPSHOTS, COMPACTION_LAG, "3600000")
    await_setting(STARTS, RETENTION, FOR_EVER)
    await_setting(RECEIPTS, RETENTION_BYTES, UNLIMITED)
    await_setting(COMMANDS, RETENTION_BYTES, UNLIMITED)


def test_no_topic_deletes_records_because_of_its_size() -> None:
    """Whatever the brokers' default is."""
    for spec in (*topic_specs(LogSettings()), view_topic("v", LogSettings())):
        assert spec.settings[RETENTION_BYTES] == UNLIMITED, spec.name


def test_every_topic_that_keeps_records_for_ever_bounds_how_long_erased_ones_stay() -> None:
    for spec in topic_specs(LogSettings()):
        if spec.settings["cleanup.policy"] == "compact":
            assert int(spec.settings[COMPACTION_LAG]) == ERASED_DAYS * DAY_MS, spec.name


def test_one_question_finds_the_ends_of_many_partitions(log: EventLog) -> None:
    places = [(topic, partition) for topic in (EVENTS, COMMANDS, DEAD_LETTERS) for partition in range(2)][:5]
    log.submit(Entry(COMMANDS, "c", b"3", 3), 0).result()
    transaction = log.own(1).begin()
    transaction.append([entry("a")])
    eventually(lambda: any(log.stored_ends(EVENTS).values()), "the record is stored")
    open_ends = log.ends(iter(places))
    transaction.commit()
    settle(log, 1)
    ends = log.ends(iter(places))
    assert ends == {place: log.end(*place) for place in places}
    assert (open_ends[EVENTS, 1], open_ends[COMMANDS, 0], ends[EVENTS, 1] > 0) == (0, 1, True)
    assert log.firsts(iter(places)) == dict.fromkeys(places, 0)
    assert log.ends([]) == log.firsts([]) == {}


def test_a_broker_that_has_not_learned_of_new_topics_is_asked_again(
    log_settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers of a cluster do not do so at the same time. Here, the first answer is what Kafka says of no topic."""
    asked = {"configs": 0, "topics": 0}

    class Late(AdminClient):
        def describe_configs(self, resources: list[ConfigResource], **options: Any) -> Any:  # type: ignore[override]
            asked["configs"] += 1
            if asked["configs"] > 1:
                return super().describe_configs(resources, **options)
            unknown = {ConfigResource(ResourceType.TOPIC, f"{resource.name}-none"): resource for resource in resources}
            answers = super().describe_configs(list(unknown), **options)
            return {unknown[each]: answer for each, answer in answers.items()}

        def describe_topics(self, topics: TopicCollection, **options: Any) -> Any:  # type: ignore[override]
            asked["topics"] += 1
            if asked["topics"] > 1:
                return super().describe_topics(topics, **options)
            (answer,) = super().describe_topics(TopicCollection(["none"]), **options).values()
            return {log_settings.topic(each): answer for each in (EVENTS, EVENTS + RESEALING)}

    expected = admin.topic_id(log_settings, EVENTS)
    monkeypatch.setattr(admin, "AdminClient", Late)
    admin.prepare(log_settings)
    assert admin.topic_id(log_settings, EVENTS) == expected
    assert asked == {"configs": 2, "topics": 2}
