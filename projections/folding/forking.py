"""The server that the local processes of a fold are forked from: it has imported what they need, and has no clients.

This process cannot be forked instead, because the threads of its clients would be missing. The server needs half a
second for its imports, so a command that will fold starts it before its own imports, and both run side by side.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import Final

FORKED: Final = multiprocessing.get_context("forkserver")
NEEDED: Final = (
    "headwater.projections.folding.tasks",
    "headwater.projections.folding.writing",
    "headwater.projections.stores.postgres.bulk",
)
"""Modules that nearly every fold needs."""
OTHERS: Final = ("headwater.projections.stores.elasticsearch.client", "headwater.projections.stores.valkey.store")
"""Writers that only some folds need; they are imported here first if a view of this process has them."""


def start_server() -> None:
    """Start the server, if it does not run yet; returns before its imports are done."""
    FORKED.set_forkserver_preload([*NEEDED, *(name for name in OTHERS if name in sys.modules)])
    with _path_inherited():
        forkserver.ensure_running()


@contextmanager
def _path_inherited() -> Iterator[None]:
    """Let a new process search the folders that this one does: Python would put the current folder first.

    The path that multiprocessing sends to the processes of the server comes after the server's own imports.
    """
    before = dict(os.environ)
    os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        yield
    finally:
        for name in ("PYTHONSAFEPATH", "PYTHONPATH"):
            del os.environ[name]
        os.environ |= before
