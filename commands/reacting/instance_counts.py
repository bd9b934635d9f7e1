"""How many process instances and timers the owner of a partition has, counted as they change.

The numbers are kept with the instances, so that a start need not read all of them. With them is the offset up to which
`processes` was read then: if other code has changed instances since, it is another, and they are counted anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.commands.reacting.instance_index import Scheduled, scheduled_of

NOTED: Final = "totals/instances"
"""The name of the numbers in the store."""


@dataclass
class InstanceCount:
    """Of one process. stopped: instances that have stopped at an event. timers: those of all instances."""

    instances: int = 0
    stopped: int = 0
    timers: int = 0


class _Noted(msgspec.Struct):
    position: int
    counts: dict[str, InstanceCount]


_DECODER: Final = msgspec.json.Decoder(_Noted)


class InstanceCounts:
    """The numbers of one partition, by process."""

    def __init__(self) -> None:
        self.of_process: dict[str, InstanceCount] = defaultdict(InstanceCount)

    def restore(self, noted: bytes | None, position: int) -> bool:
        """Take the numbers that were noted; False if they are not those of this position in `processes`."""
        try:
            found = _DECODER.decode(noted or b"")
        except msgspec.MsgspecError:
            return False
        if found.position != position:
            return False
        self.of_process.update(found.counts)
        return True

    def count(self, instances: Iterable[tuple[str, bytes]]) -> None:
        """Count these instances, by record key."""
        for key, value in instances:
            self.change(key, None, scheduled_of(value))

    def change(self, key: str, before: Scheduled | None, after: Scheduled | None) -> None:
        """Take the change of an instance; None: there is none."""
        count = self.of_process[key.partition("/")[0]]
        for scheduled, sign in ((before, -1), (after, 1)):
            if scheduled is not None:
                count.instances += sign
                count.stopped += sign * (scheduled.stopped is not None)
                count.timers += sign * len(scheduled.timers)

    def noted(self, position: int) -> bytes:
        """The input of `restore`. position: up to where `processes` is read."""
        return msgspec.json.encode(_Noted(position, self.of_process))
