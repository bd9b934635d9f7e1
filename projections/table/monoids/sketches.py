"""Sketches: the approximate number of different values, in a row of fixed size.

HyperLogLog (Flajolet and others, 2007) over the MD5 of each value, which Spark and Python both have: it is only a hash
here. A register keeps the highest rank of its values, which does not depend on their order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headwater.projections.table.monoids.monoid import State, StateField
from headwater.projections.table.types import ColumnType

REGISTERS: Final = 2048
"""Standard error 1.04 / sqrt(registers): 2.3 per cent."""
RANK_BITS: Final = 40
ZERO: Final = 48
"""A register is the character after "0" by its rank: "0" to "X", none of which JSON escapes."""
EMPTY: Final = chr(ZERO) * REGISTERS


def sketch_field(name: str) -> StateField:
    """The state field of a sketch; a patch has entries of register and rank, a row has one character per register."""
    entry = (StateField("v", ColumnType.INTEGER), StateField("n", ColumnType.INTEGER))
    return StateField(name, ColumnType.SKETCH, entry=entry)


@dataclass(frozen=True, slots=True)
class Sketch:
    """The highest rank of each register. Values are never removed."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    @property
    def keys(self) -> tuple[StateField, ...]:
        return self.field.entry[:1]

    def combine(self, row: State, patch: State) -> None:
        theirs = patch.get(self.field.name)
        if not theirs:
            return
        ours = row.get(self.field.name) or EMPTY
        if isinstance(theirs, str):
            row[self.field.name] = "".join(map(max, ours, theirs))
        else:
            row[self.field.name] = dense(((each["v"], each["n"]) for each in theirs), ours)


def register_of(value: Any) -> dict[str, int]:
    """The register of a value (a text or an integer), and its rank there."""
    digest = hashlib.md5(str(value).encode(), usedforsecurity=False).hexdigest()
    return {"v": int(digest[:3], 16) >> 1, "n": RANK_BITS + 1 - max(1, int(digest[3:13], 16).bit_length())}


def register_spark(value: str) -> str:
    """`register_of` in Spark SQL."""
    digest = f"md5(cast(cast({value} as string) as binary))"
    register = f"cast(shiftright(cast(conv(substr({digest}, 1, 3), 16, 10) as int), 1) as bigint)"
    rank = f"cast({RANK_BITS + 1} - length(conv(substr({digest}, 4, 10), 16, 2)) as bigint)"
    return f"struct({register} as v, {rank} as n)"


def dense(entries: Iterable[tuple[int, int]], sketch: str = EMPTY) -> str:
    """`sketch` updated with these registers and ranks, in the form of a row."""
    ranks = bytearray(sketch, "ascii")
    for register, rank in entries:
        ranks[register] = max(ranks[register], ZERO + rank)
    return ranks.decode("ascii")


def estimate(sketch: str | None) -> int:
    """The approximate number of different values in a sketch."""
    if not sketch:
        return 0
    ranks = [character - ZERO for character in sketch.encode("ascii")]
    # sums of powers of two within 53 bits: exact in every order
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / sum(2.0**-rank for rank in ranks)
    unused = ranks.count(0)
    if raw <= 2.5 * REGISTERS and unused:
        raw = REGISTERS * math.log(REGISTERS / unused)
    return math.floor(raw + 0.5)
