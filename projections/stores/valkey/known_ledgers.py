"""The ledgers of a generation as Valkey has them: a hash with a JSON text per partition of `patches`."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import orjson

from headwater.projections.stores.names import cache_ledger, cache_rankings
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.stores.valkey.client import translated
from headwater.projections.stores.valkey.rankings import Ranked, ranked_of
from headwater.projections.stores.valkey.scripts import INCOMPLETE
from headwater.projections.table.patch import places_from_json, places_to_json
from headwater.projections.view import View

MARK: Final = "ranking "
"""Begins the name of a field that says of a ranking that was added: 0 while it is filled, 1 once it is complete.

The scripts of `added_rankings` add these fields to all ledgers of a generation at once, so each writer notices: its
ledger has changed.
"""


@dataclass(frozen=True)
class KnownLedgers:
    """The ledgers of a generation; none if it is incomplete.

    entries: as they were looked up. built: the declarations of the rankings that it was built with. marks: see MARK, by
    declaration.
    """

    ledgers: dict[int, Ledger]
    entries: Mapping[int, bytes]
    built: frozenset[str]
    marks: Mapping[str, int]

    @classmethod
    def of(cls, stored: Mapping[bytes, bytes], built: Collection[str] = ()) -> KnownLedgers:
        """From the fields of a hash."""
        is_complete = not any(each.endswith(INCOMPLETE) for each in stored.values())
        entries = {int(partition): entry for partition, entry in stored.items() if is_complete}
        held = {partition: orjson.loads(entry) for partition, entry in entries.items()}
        ledgers = {
            partition: Ledger(each["next"], places_from_json(each["applied"])) for partition, each in held.items()
        }
        first: Mapping[str, int] = next(iter(held.values()), {})  # all have the same marks
        marks = {name.removeprefix(MARK): mark for name, mark in first.items() if name.startswith(MARK)}
        return cls(ledgers, entries, frozenset(built), marks)

    @property
    def kept(self) -> frozenset[str]:
        """The rankings that whoever writes a row must keep: also those that its code does not declare."""
        return self.built.union(self.marks)

    @property
    def complete(self) -> frozenset[str]:
        """The rankings that have all rows."""
        return self.built.union(name for name, mark in self.marks.items() if mark)

    def digest(self, partition: int) -> str:
        """As the scripts make it."""
        return hashlib.sha1(self.entries[partition], usedforsecurity=False).hexdigest()


def looked_up(client: Any, environment: str, targets: Sequence[Target]) -> list[KnownLedgers]:
    """The ledgers of generations, with the rankings that they were built with; raises StoreUnavailable."""
    with translated(), client.pipeline(transaction=False) as pipeline:
        for target in targets:
            pipeline.hgetall(cache_ledger(environment, *target.id))
            pipeline.smembers(cache_rankings(environment, *target.id))
        found = pipeline.execute()
    return [
        KnownLedgers.of(entries, {name.decode() for name in built})
        for entries, built in zip(found[::2], found[1::2], strict=True)
    ]


def only_ledgers(client: Any, environment: str, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
    """The same without the rankings, which who only reads need not know."""
    with translated(), client.pipeline(transaction=False) as pipeline:
        for target in targets:
            pipeline.hgetall(cache_ledger(environment, *target.id))
        return [KnownLedgers.of(entries).ledgers for entries in pipeline.execute()]


def missing(view: View, known: KnownLedgers) -> list[Ranked]:
    """The rankings that a view declares and that its generation does not have completely.

    None if it is lost, or incomplete: it is built with all of them.
    """
    return [each for each in ranked_of(view) if each.name not in known.complete] if known.ledgers else []


def ledger_to_json(ledger: Ledger, marks: Mapping[str, int] = MappingProxyType({})) -> bytes:
    """A ledger as it is stored."""
    # without spaces, and the marks last, as the scripts add them
    held = {"next": ledger.next_offset, "applied": places_to_json(ledger.applied)}
    return orjson.dumps(held | {MARK + name: mark for name, mark in marks.items()})
