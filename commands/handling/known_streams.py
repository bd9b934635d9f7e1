"""What a handler knows of streams: their decoded states, as many as fit in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

from headwater.commands.handling.decision import Known
from headwater.eventlog.limits import MAX_RECORD_BYTES
from headwater.eventlog.personal.installed import installed

CACHED_STREAMS = 60_000
"""For a whole process, independent of the number of its partitions; a decoded state takes two to three kilobytes."""
CACHED_BYTES = 128 * 1024 * 1024
"""Likewise for a whole process: of the states as JSON. Decoded, a state takes a few times as much."""


class KnownStreams:
    """By stream, what is known of it; `shrink` forgets those that were not used for longest."""

    def __init__(self, partitions: int) -> None:
        """partitions: which share the memory of a process."""
        self._most = max(1, CACHED_STREAMS // partitions)
        self._most_bytes = max(MAX_RECORD_BYTES, CACHED_BYTES // partitions)
        self._known: OrderedDict[str, Known] = OrderedDict()
        self.size_bytes = 0
        """The sum of their `size_bytes`."""
        self._erasures = 0
        """Those that the vault had noticed when states were last forgotten because of one."""

    def __contains__(self, stream: str) -> bool:
        return stream in self._known

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def get(self, stream: str) -> Known | None:
        """What is known of a stream, which counts as used; None if nothing is."""
        known = self._known.get(stream)
        if known is not None:
            self._known.move_to_end(stream)
        return known

    def put(self, stream: str, known: Known) -> None:
        """Know this of a stream, instead of what was known before."""
        before = self._known.get(stream)
        self._known[stream] = known
        self.size_bytes += known.size_bytes - (0 if before is None else before.size_bytes)

    def forget(self, stream: str) -> None:
        """Know nothing of a stream; the store has what is committed."""
        known = self._known.pop(stream, None)
        if known is not None:
            self.size_bytes -= known.size_bytes

    def forget_opened(self, personal: Collection[str]) -> None:
        """Forget states of these aggregates if a key was destroyed since: the store has them sealed, and they are
        opened anew."""
        erasures = installed().erasures
        if erasures != self._erasures:
            self._erasures = erasures
            for stream in [each for each in self._known if each.partition("/")[0] in personal]:
                self.forget(stream)

    def shrink(self) -> None:
        """Forget streams until the others are neither too many nor too large."""
        while len(self._known) > self._most or self.size_bytes > self._most_bytes:
            self.forget(next(iter(self._known)))
