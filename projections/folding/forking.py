"""The server that the local processes of a fold are forked from: it has imported what they need, and has no clients.

This process cannot be forked instead, because the threads of its clients would be missing. The server needs half a
second for its imports, so a command that will fold starts it before its own imports, and both run side by side.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import forkserver
from typing import Final

FORKED: Final = multiprocessing.get_context("forkserver")
NEEDED: Final = ("projections.folding.tasks", "projections.folding.arrow_rows", "projections.stores.postgres.bulk")
"""Modules that nearly every fold needs."""
OTHERS: Final = ("projections.stores.elasticsearch.bulk", "projections.stores.valkey.bulk")
"""Writers that only some folds need; they are imported here first if a view of this process has them."""


def start_server() -> None:
    """Start the server, if it does not run yet; returns before its imports are done."""
    FORKED.set_forkserver_preload([*NEEDED, *(name for name in OTHERS if name in sys.modules)])
    forkserver.ensure_running()
