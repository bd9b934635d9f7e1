"""The live generations for loaders and queries: read by a thread, so that a server that hangs delays nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.registry import Generations

WAIT_S: Final = 0.5
"""How long a call waits for PostgreSQL if the generations were read before."""


@contextmanager
def followed(generations: Generations) -> Iterator[Callable[[], list[Generation]]]:
    """The live generations of every version, for frequent calls over a connection that stays open.

    A call raises StoreUnavailable if PostgreSQL does not answer; but for the first one, after WAIT_S.
    """
    with generations.reader() as read, ThreadPoolExecutor(1, "registry") as thread:
        yield _Followed(lambda: thread.submit(read))


class _Followed:
    """Reads the generations in another thread. submit: begins to."""

    def __init__(self, submit: Callable[[], Future[list[Generation]]]) -> None:
        self._submit = submit
        self._reading: Future[list[Generation]] | None = None
        self._was_read = False

    def __call__(self) -> list[Generation]:
        reading = self._reading or self._submit()
        self._reading = reading
        try:
            found = reading.result(WAIT_S if self._was_read else None)
        except TimeoutError as error:
            raise StoreUnavailable("PostgreSQL", f"it has not answered for {WAIT_S:g} s") from error
        finally:
            if reading.done():
                self._reading = None
        self._was_read = True
        return found
