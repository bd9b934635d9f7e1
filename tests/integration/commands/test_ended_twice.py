"""A request that ends a transaction and arrives late, during the next one: it must not end that one as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from compose.settings import StackSettings
from eventlog import topics
from eventlog.kafka.log import KafkaLog
from eventlog.ports import Entry
from eventlog.settings import LogSettings
from tests.support.kafka_proxy import Api, Fault, KafkaProxy, Step

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
