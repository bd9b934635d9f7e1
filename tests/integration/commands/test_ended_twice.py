"""A request that ends a transaction and arrives late, during the next one: it must not end that one as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count, islice
from math import inf

import pytest

from headwater.commands.handling.command_task import CommandTask
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.owning.resume_offset import resume_offset
from headwater.compose.settings import StackSettings
from headwater.eventlog import topics
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.kafka.writer import KafkaTransaction
from headwater.eventlog.ports import HANDLER, Entry
from headwater.eventlog.settings import LogSettings
from tests.support.kafka_proxy import Api, Fault, KafkaProxy, Step
from tests.support.waiting import eventually
from tests.unit.commands.counted import Counters
from tests.unit.commands.test_handler import REGISTRY
from tests.unit.commands.test_torn_batches import check

STREAM = "listing/l1"


@pytest.fixture
def proxy(stack: StackSettings) -> Iterator[KafkaProxy]:
    proxy = KafkaProxy(stack.ports.kafka)
    yield proxy
    proxy.close()


@pytest.fixture
def log(log_settings: LogSettings, proxy: KafkaProxy) -> Iterator[KafkaLog]:
    """The log as a process has it whose way to the broker is the proxy."""
    with closing(KafkaLog(replace(log_settings, bootstrap=f"127.0.0.1:{proxy.port}"))) as log:
        yield log


def event(version: int) -> Entry:
    return Entry(topics.EVENTS, f"{STREAM}/{version}", b"{}", 1)


def versions(log: KafkaLog) -> list[str]:
    return [record.key for record in log.read(topics.EVENTS, 0, 0)]


@pytest.mark.parametrize("fault", [Fault.HELD, Fault.ANSWER_LOST])
def test_a_late_end_of_a_transaction_does_not_commit_half_of_the_next(
    log: KafkaLog, proxy: KafkaProxy, fault: Fault
) -> None:
    with closing(log.own(0)) as writer:
        first = writer.begin()
        first.append([event(1)])
        proxy.arm(Step(Api.END_TRANSACTION, 0, fault))
        first.commit(1)
        assert [step.fault for step in proxy.happened] == [fault]
        second = writer.begin()
        second.append([event(2)])
        second._wait_for(second._batches)
        proxy.release()
        second.abort()
    assert versions(log) == [f"{STREAM}/1"]


@pytest.mark.parametrize("appended", [1, 2, 3, 4])
def test_a_batch_that_was_committed_in_half_is_completed(
    log: KafkaLog, log_settings: LogSettings, proxy: KafkaProxy, appended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the epoch of a producer stayed the same; appended: calls of `append` before the late request arrives."""
    monkeypatch.setattr("headwater.eventlog.kafka.writer.SENT_ONCE_S", inf)
    names = [f"c{n}" for n in islice((n for n in count() if partition_of(f"counter/c{n}", log.partitions) == 0), 2)]
    append = KafkaTransaction.append
    calls = 0

    def late(transaction: KafkaTransaction, entries: Sequence[Entry]) -> list[int]:
        nonlocal calls
        offsets = append(transaction, entries)
        calls += 1
        if calls == appended:
            transaction._wait_for(transaction._batches)
            proxy.release()
        return offsets

    with closing(KafkaLog(log_settings)) as direct:
        counters = Counters()
        counters.log = direct  # type: ignore[assignment]
        sent = {counters.send(name, events=2) for name in names}
        with closing(log.own(0)) as writer, closing(CommandTask(log, REGISTRY, 0, MemoryStore())) as task:
            task.restore(writer, lambda: False)
            eventually(lambda: direct.end(topics.COMMANDS, 0) >= 2, "the commands are in the log")
            first = list(direct.read(topics.COMMANDS, 0, resume_offset(log, HANDLER, writer)))
            proxy.arm(Step(Api.END_TRANSACTION, 0, Fault.HELD))
            task.work(writer, first)
            sent |= {counters.send(name, events=3) for name in names}
            eventually(lambda: direct.end(topics.COMMANDS, 0) >= 4, "the commands are in the log")
            monkeypatch.setattr(KafkaTransaction, "append", late)
            with suppress(EventLogError):
                task.work(writer, list(direct.read(topics.COMMANDS, 0, first[-1].offset + 1)))
            monkeypatch.undo()
        counters.serve()
        counters.serve()
        check(counters, sent)
