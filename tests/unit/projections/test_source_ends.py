"""Where sources end, as views are planned and looked at."""

from __future__ import annotations

import pytest

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.generations.registry.sources import ends_of

TABLE = "cdc.shop.public.customers"


class NoTopic(MemoryLog):
    """Kafka, which has no end for a topic that does not exist."""

    def end(self, topic: str, partition: int) -> int:
        if not self.stored_ends(topic):
            raise LogUnavailable(f'asking for the end of "{topic}"', "unknown")
        return super().end(topic, partition)


def test_a_captured_table_without_a_topic_has_no_rows_yet() -> None:
    log = NoTopic(partitions=2)
    log.submit(Entry(EVENTS, "thing/1", b"{}", 1), 1).result()
    assert ends_of(log, ["1", f"{TABLE}/0", f"{TABLE}/1"]) == {"1": 1, f"{TABLE}/0": 0, f"{TABLE}/1": 0}
    log.submit(Entry(TABLE, "1", b"{}", 1), 0).result()
    assert ends_of(log, [f"{TABLE}/0", f"{TABLE}/1"]) == {f"{TABLE}/0": 1, f"{TABLE}/1": 0}
    with pytest.raises(LogUnavailable):
        ends_of(log, [f"{OBSERVATIONS}/0"])
