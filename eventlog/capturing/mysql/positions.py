"""Positions in the binary log of MariaDB and MySQL."""

from __future__ import annotations

from typing import NamedTuple


class BinlogPosition(NamedTuple):
    """Where a change is in a server's binary log; positions of one server sort in the order of commits.

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


def file_number(file: str) -> int:
    """The number at the end of a binary log's name, such as `mariadb-bin.000003`; 0 if there is none."""
    number = file.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
