"""What is measured of the process instances in the partitions that this process owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.commands.reacting.instance_counts import InstanceCounts
from headwater.eventlog.programs.metrics import REGISTRY


class Measured(Protocol):
    """The owner of a partition of instances. next_due_ms: when the next timer is due, since 1970; None: there is none.

    parked, unreadable_instances, counts: see InstanceStore.
    """

    @property
    def next_due_ms(self) -> int | None: ...
    @property
    def counts(self) -> InstanceCounts: ...
    @property
    def parked(self) -> int: ...
    @property
    def unreadable_instances(self) -> int: ...


class ProcessMetrics(Collector):
    """The instances of all partitions that are owned, by process, and their timers."""

    def __init__(self) -> None:
        self._owned: dict[int, Measured] = {}

    def add(self, partition: int, owner: Measured) -> None:
        """Measure a partition, from now on by this owner."""
        self._owned[partition] = owner

    def remove(self, partition: int, owner: Measured) -> None:
        """Measure a partition no more, unless it has another owner since."""
        if self._owned.get(partition) is owner:
            del self._owned[partition]

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        owned = dict(self._owned)
        instances, stopped, timers = Counter[str](), Counter[str](), Counter[str]()
        for owner in owned.values():
            for process, count in list(owner.counts.of_process.items()):
                instances[process] += count.instances
                stopped[process] += count.stopped
                timers[process] += count.timers
        for name, what, numbers in (
            ("instances", "Instances of a process.", instances),
            ("stopped", "Instances that have stopped at an event, which is a dead letter.", stopped),
            ("timers", "Timers that instances have set.", timers),
        ):
            made = GaugeMetricFamily(f"headwater_process_{name}", what, labels=["process"])
            for process, number in numbers.items():
                made.add_metric([process], number)
            yield made
        parked = GaugeMetricFamily(
            "headwater_process_parked", "Events that wait for instances that have stopped.", labels=["partition"]
        )
        unreadable = GaugeMetricFamily(
            "headwater_process_unreadable",
            "Instances that this code cannot read or does not know.",
            labels=["partition"],
        )
        due = GaugeMetricFamily(
            "headwater_process_timer_due_timestamp_seconds",
            "When the next timer is due: it is late if this is in the past.",
            labels=["partition"],
        )
        for partition, owner in owned.items():
            parked.add_metric([str(partition)], owner.parked)
            unreadable.add_metric([str(partition)], owner.unreadable_instances)
            if (next_due_ms := owner.next_due_ms) is not None:
                due.add_metric([str(partition)], next_due_ms / 1000)
        yield parked
        yield unreadable
        yield due


OWNED: Final = ProcessMetrics()
"""Of this process."""
REGISTRY.register(OWNED)
