"""Positions in the logs of captured databases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_LSN: Final = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class WalPosition(NamedTuple):
    """Where a change is in PostgreSQL's write-ahead log; positions of one database sort in the order of commits.

    commit_lsn: where the transaction before was committed, in bytes; 0 if the record does not say it.
    lsn: of the change.
    order: within its transaction, from 1; 0 in a snapshot.
    transaction: its id; 0 in a snapshot.
    """

    commit_lsn: int
    lsn: int
    order: int
    transaction: int

    def __str__(self) -> str:
        return lsn_text(self.lsn)


class BinlogPosition(NamedTuple):
    """Where a change is in the binary log of a MariaDB or MySQL server; positions of one server sort in the order of
    commits.

    number: of the file.
    pos: of the event, in bytes.
    row: within the event.
    order: within its transaction, from 1; 0 in a snapshot.
    transaction: its GTID, or where it begins in a log without GTIDs; empty in a snapshot.
    file: its name.
    """

    number: int
    pos: int
    row: int
    order: int
    transaction: str
    file: str

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


def offset_lsn(offset: Mapping[str, Any]) -> int:
    """The farthest position in an offset that Debezium has stored for PostgreSQL; 0 if it has none."""
    lsns = (offset.get(name) for name in ("lsn", "lsn_proc", "lsn_commit"))
    return max((lsn for lsn in lsns if isinstance(lsn, int)), default=0)


def lsn_text(lsn: int) -> str:
    """A position in the write-ahead log as PostgreSQL writes it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """The position `0/16B3748` as a number of bytes; raises ValueError with the expected form."""
    if not _LSN.fullmatch(text):
        raise ValueError(f'"{text[:64]}" is not a position of PostgreSQL: write it like 0/16B3748')
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def file_number(file: str) -> int:
    """The number at the end of a binary log's name, such as `mariadb-bin.000003`; 0 if there is none."""
    number = file.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
