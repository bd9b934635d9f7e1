"""Positions in PostgreSQL's write-ahead log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

_LSN: Final = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_COMMIT_LSN = msgspec.json.Decoder(tuple[str | None, str | None])


class WalPosition(NamedTuple):
    """Where a change is in the database's write-ahead log; positions of one database sort in the order of commits.

    commit_lsn: where the transaction before was committed, in bytes.
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


def commit_lsn(sequence: str | None) -> int:
    """Where the transaction before was committed, of the `sequence` in a record's source; 0 if it does not say."""
    return int((_COMMIT_LSN.decode(sequence)[0] if sequence else None) or 0)


def offset_lsn(offset: Mapping[str, Any]) -> int:
    """The farthest position in an offset that Debezium has stored; 0 if it has none."""
    places = (offset.get(name) for name in ("lsn", "lsn_proc", "lsn_commit"))
    return max((place for place in places if isinstance(place, int)), default=0)


def lsn_text(lsn: int) -> str:
    """A position in the write-ahead log as PostgreSQL writes it: `0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """The position `0/16B3748` as a number of bytes; raises ValueError with the expected form."""
    if not _LSN.fullmatch(text):
        raise ValueError(f'"{text[:64]}" is not a position of PostgreSQL: write it like 0/16B3748')
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)
