"""What a handler measures."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headwater.eventlog.errors import Fenced
from headwater.eventlog.programs.metrics import counter, gauge, seconds

UNKNOWN: Final = "unknown"
"""In place of the type of a command that is not declared: whoever sends it chose its name."""
COMMANDS: Final = counter("commands", "Commands decided; repeated ones are left out.", ["type", "outcome"])
PARTITIONS: Final = gauge("partitions_owned", "Partitions that this process serves in a role.", ["role"])
RECORDS: Final = counter("partition_records", "Records worked through in a role.", ["role"])
TRANSACTIONS: Final = counter("transactions", "Transactions in a role, by how they ended.", ["role", "outcome"])
TRANSACTION_SECONDS: Final = seconds(
    "transaction_seconds", "From the first record of a transaction, with its decisions, to its commit.", ["role"]
)


def count_commands(decided: Iterable[tuple[str, str]]) -> None:
    """Count the types and outcomes of committed decisions."""
    for (command_type, outcome), number in Tally(decided).items():
        COMMANDS.labels(command_type, outcome).inc(number)


@contextmanager
def transaction(role: str, records: int) -> Iterator[None]:
    """A context that measures one transaction in a role."""
    began, outcome = time.perf_counter(), "failed"
    try:
        yield
        outcome = "committed"
    except Fenced:
        outcome = "fenced"
        raise
    finally:
        TRANSACTIONS.labels(role, outcome).inc()
        if outcome == "committed":
            RECORDS.labels(role).inc(records)
            TRANSACTION_SECONDS.labels(role).observe(time.perf_counter() - began)


@contextmanager
def serving(role: str) -> Iterator[None]:
    """A context in which this process serves a partition in a role."""
    served = PARTITIONS.labels(role)
    served.inc()
    try:
        yield
    finally:
        served.dec()
