"""Rankings that a view declares since its rows were built: filled while loaders write, and read once they are complete.

While a ranking is filled, each ledger of the generation has its mark (`known_ledgers.MARK`), so each writer keeps it: a
script writes no row unless the ledger is the one that its caller has read. A filler goes over all rows meanwhile, and
adds each to the ranking unless it has changed since it was read. At the end the marks say that the ranking is complete.

If a filler is killed, the next one goes over all rows again: those that are in the ranking stay there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

import orjson

from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import cache_key, cache_ledger
from headwater.projections.stores.store import Target, no_fault
from headwater.projections.stores.valkey.client import NAME, connect, translated
from headwater.projections.stores.valkey.known_ledgers import MARK, looked_up, missing
from headwater.projections.stores.valkey.rankings import Ranked, Rankings
from headwater.projections.stores.valkey.scripts import CHANGED, DONE, GONE, run

log = logging.getLogger(__name__)

# Each script has the ledgers of a generation as KEYS[1], and the two marks of a ranking (being filled, complete) as
# ARGV[1] and ARGV[2]: texts at the end of each ledger, before its last brace.

# Adds the first mark to all ledgers, unless they have one.
BEGIN: Final = f"""
local held = redis.call('HGETALL', KEYS[1])
if #held == 0 then return {GONE} end
if string.find(held[2], ARGV[1], 1, true) or string.find(held[2], ARGV[2], 1, true) then return {DONE} end
for number = 1, #held, 2 do
    redis.call('HSET', KEYS[1], held[number], string.sub(held[number + 1], 1, -2) .. ARGV[1] .. '}}')
end
return {DONE}
"""

# Puts the second mark in place of the first, unless another filler has done so.
COMPLETE: Final = f"""
local held = redis.call('HGETALL', KEYS[1])
if #held == 0 then return {GONE} end
for number = 1, #held, 2 do
    local text = held[number + 1]
    local first, last = string.find(text, ARGV[1], 1, true)
    if first then
        text = string.sub(text, 1, first - 1) .. ARGV[2] .. string.sub(text, last + 1)
        redis.call('HSET', KEYS[1], held[number], text)
    end
end
return {DONE}
"""

# KEYS: the ledgers, a row, and its sorted set. ARGV: a partition, the first mark, the state of the row as it was read,
# its score and its member. 1: it is in the set; 0: the row has changed.
FILL_ROW: Final = f"""
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then return {GONE} end
if not string.find(held, ARGV[2], 1, true) then return {CHANGED} end
if (redis.call('HGET', KEYS[2], 'state') or '') ~= ARGV[3] then return 0 end
redis.call('ZADD', KEYS[3], ARGV[4], ARGV[5])
return 1
"""


def missing_rankings(settings: StoreSettings, target: Target) -> Sequence[str]:
    """The rankings that a view declares, and that its generation does not have completely; raises StoreUnavailable."""
    with closing(connect(settings.valkey)) as client:
        (known,) = looked_up(client, settings.environment, [target])
    return [f"ranking {each.name}" for each in missing(target.view, known)]


def add_rankings(settings: StoreSettings, target: Target, fault: Callable[[str], None] = no_fault) -> Sequence[str]:
    """Fill them, and return them; raises StoreUnavailable, GenerationMissing, and Unloadable.

    fault: called with a name at each moment at which a crash must do no harm; for tests.
    """
    added = []
    with closing(connect(settings.valkey)) as client:
        (known,) = looked_up(client, settings.environment, [target])
        for ranked in missing(target.view, known):
            _Filling(client, settings.environment, target, ranked, fault).run(min(known.ledgers))
            added.append(f"ranking {ranked.name}")
    return added


class _Filling:
    """Fills one ranking of a generation."""

    def __init__(
        self, client: Any, environment: str, target: Target, ranked: Ranked, fault: Callable[[str], None]
    ) -> None:
        self._client, self._environment, self._target, self._fault = client, environment, target, fault
        self._name, self._form = ranked.name, DocumentForm.of(target.view)
        self._rankings = Rankings(environment, *target.id, (ranked,))
        self._ledgers = cache_ledger(environment, *target.id)
        self._marks = [f',"{MARK}{ranked.name}":{number}' for number in (0, 1)]

    def run(self, partition: int) -> None:
        """Fill it and say that it is complete. partition: any that the generation has a ledger of."""
        self._run(BEGIN)
        self._fault("marked")
        self._fill(partition)
        self._fault("filled")
        self._run(COMPLETE)

    def _fill(self, partition: int) -> None:
        """Add every row, until another filler has completed the ranking."""
        for chunk in self._chunks():
            names = chunk
            while names:
                with translated(), self._client.pipeline(transaction=False) as pipeline:
                    for name in names:
                        pipeline.hget(name, "state")
                    states: list[bytes | None] = pipeline.execute()
                placed = list(self._placed(names, states))
                self._fault("rows read")
                calls = [
                    (3, self._ledgers, name, ranking, partition, self._marks[0], state, *place)
                    for name, state, ranking, place in placed
                ]
                outcomes = run(self._client, FILL_ROW, calls)
                if GONE in outcomes:
                    raise GenerationMissing(*self._target.id)
                if CHANGED in outcomes:
                    return
                names = [name for (name, *_), outcome in zip(placed, outcomes, strict=True) if outcome == 0]

    def _placed(
        self, names: Sequence[bytes], states: Sequence[bytes | None]
    ) -> Iterator[tuple[bytes, bytes, str, tuple[float, bytes]]]:
        """Of each row that belongs to the ranking: its name, its state, the sorted set and its place in it."""
        for name, state in zip(names, states, strict=True):
            if state is not None:
                key = name.decode().removeprefix(self._prefix)
                with loadable(NAME):
                    places = self._rankings.places(self._form, key, orjson.loads(state))
                for ranking, place in places.items():
                    yield name, state, ranking, place

    @property
    def _prefix(self) -> str:
        return cache_key(self._environment, *self._target.id, "")

    def _chunks(self) -> Iterator[list[bytes]]:
        """The names of all rows that are there from now on until the end; those that come later are kept already."""
        with translated():
            found = self._client.scan_iter(match=f"{self._prefix}*", count=CHUNK_ROWS)
            while names := list(islice(found, CHUNK_ROWS)):
                yield names

    def _run(self, script: str) -> None:
        (outcome,) = run(self._client, script, [(1, self._ledgers, *self._marks)])
        if outcome == GONE:
            raise GenerationMissing(*self._target.id)
