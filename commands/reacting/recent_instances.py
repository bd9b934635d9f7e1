"""The instances of a partition that were used last, as objects."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from headwater.commands.reacting.instance import Instance

MAX_INSTANCES: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of their records; as objects they take several times as much memory."""


class _Recent(NamedTuple):
    instance: Instance
    size_bytes: int


class RecentInstances:
    """Instances by record key, without those that were not used for longest."""

    def __init__(self) -> None:
        self._instances: OrderedDict[str, _Recent] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: str) -> Instance | None:
        """The instance, if it was used lately."""
        found = self._instances.get(key)
        if found is None:
            return None
        self._instances.move_to_end(key)
        return found.instance

    def put(self, key: str, instance: Instance, size_bytes: int) -> None:
        """Keep an instance. size_bytes: of its record."""
        self.remove(key)
        self._instances[key] = _Recent(instance, size_bytes)
        self._size_bytes += size_bytes
        while len(self._instances) > MAX_INSTANCES or self._size_bytes > MAX_BYTES:
            self._size_bytes -= self._instances.popitem(last=False)[1].size_bytes

    def remove(self, key: str) -> None:
        """Forget an instance."""
        found = self._instances.pop(key, None)
        self._size_bytes -= found.size_bytes if found else 0
