"""What goes on in the background of a test, until the end of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def running(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Each of `works` in a thread of its own; what it is given is set at the end of the block, and it must end then,
    and no sooner."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=[stop]) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
        assert all(thread.is_alive() for thread in threads), "something in the background has ended"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
