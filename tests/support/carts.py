"""A real-time view over reports of carts, each of which replaces the last one of its cart, and the same in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from headwater import INTEGER, TEXT, Cache, Observation, Postgres, StreamView, Topic, observations
from headwater.commands.declaring.observation import ObservationRegistry, Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS: Final = (("a", "hand cart"), ("b", "trolley"))
LATE_AFTER: Final = timedelta(minutes=10)


class Moved(Observation, type="cart_moved"):
    """A cart went on, with so many boxes."""

    kind: str
    step: int
    boxes: int


REGISTRY = ObservationRegistry([("here", Moved)])


class Move(NamedTuple):
    """A report; `late` is how much later than its time it is accepted."""

    cart: str
    kind: str
    step: int
    boxes: int
    late: timedelta = timedelta()

    @property
    def id(self) -> str:
        return f"cart_moved/yard/{self.cart}"

    def report(self, now: datetime | None = None) -> Report[Observation]:
        """As the API takes it."""
        document = {
            "id": self.cart,
            "source": "yard",
            "time": ((now or datetime.now(UTC)) - self.late).isoformat(),
            "data": {"kind": self.kind, "step": self.step, "boxes": self.boxes},
        }
        return REGISTRY.read("cart_moved", orjson.dumps(document))


def boxes(moved: DataFrame) -> DataFrame:
    """A row per box of a cart of a known kind; every fifth step is not told, and every seventh takes the row away."""
    from pyspark.sql import functions as f

    kinds = moved.sparkSession.createDataFrame(KINDS, ["kind", "name"])
    listed = f.expr("if(boxes > 0, sequence(1, boxes), array())")
    return (
        moved.where("step % 5 <> 0")
        .select("id", "kind", "step", f.posexplode(listed).alias("place", "box"))
        .join(kinds, "kind")
        .select("id", "place", "name", "step", f.expr("step % 7 = 0").alias("gone"))
    )


def cart_view(**changes: Any) -> StreamView:
    fields: dict[str, Any] = {
        "name": "carts",
        "key": ("id", "place"),
        "columns": {"id": TEXT, "place": INTEGER, "name": TEXT, "step": INTEGER},
        "sources": {"moved": observations(Moved, late_after="10m")},
        "query": boxes,
        "stores": (Postgres(), Cache(), Topic()),
        "deleted_by": "gone",
        "realtime": True,
    }
    return StreamView(**(fields | changes))


carts = cart_view()


def versions_in_python(moves: Iterable[Move]) -> dict[str, list[int | None]]:
    """The steps of each row, by its key, in the order of the offsets of `moves`; None: it is deleted."""
    found: dict[str, list[int | None]] = {}
    for move in moves:
        if move.late > LATE_AFTER or move.step % 5 == 0 or move.kind not in dict(KINDS):
            continue
        for place in range(move.boxes):
            key = f"{move.id.replace('/', '%2F')}/{place}"
            found.setdefault(key, []).append(move.step if move.step % 7 else None)
    return found


def rows_in_python(moves: Iterable[Move]) -> dict[str, int]:
    """The step of each row, by its key."""
    last = {key: steps[-1] for key, steps in versions_in_python(moves).items()}
    return {key: step for key, step in last.items() if step is not None}


def is_in_order(seen: Sequence[int | None], versions: Sequence[int | None]) -> bool:
    """Whether no version was seen after a later one."""
    at = 0
    for each in seen:
        later = [place for place in range(at, len(versions)) if versions[place] == each]
        if not later:
            return False
        at = later[0]
    return True
