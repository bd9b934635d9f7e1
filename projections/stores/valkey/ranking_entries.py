"""The rankings of a generation, entry by entry: the members of its sorted sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing

import orjson

from headwater.projections.limits import CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import cache_ranking
from headwater.projections.stores.rows import Rows, Size
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.client import connect, translated
from headwater.projections.stores.valkey.rankings import Member, Rankings
from headwater.projections.table.monoids import State


class ValkeyRankings:
    """See RowReader. Its rows are entries of sorted sets, each with its score, or null if that is infinite.

    The key of an entry is a JSON list: the ranking, the values of the group, and the row's key; then the exact number,
    if the score is inexact.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def rows(self, target: Target) -> Rows:
        ranked = {each.name: each for each in self._rankings(target).ranked}
        prefix = cache_ranking(self._settings.environment, *target.id, "", "")
        with translated(), closing(connect(self._settings.valkey)) as client:
            for name in set(client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)):
                ranking, _, group = name.decode().removeprefix(prefix).partition(":")
                if ranking not in ranked:
                    continue  # nobody reads it
                for member, score in client.zscan_iter(name, count=CHUNK_ROWS):
                    yield _entry_key(ranking, group, ranked[ranking].read(member, score)), _state(score)

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), closing(connect(self._settings.valkey)) as client, client.pipeline(False) as pipeline:
            for name, member in self._members(target, keys):
                pipeline.zscore(name, member)
            scores: list[float | None] = pipeline.execute()
        return {key: _state(score) for key, score in zip(keys, scores, strict=True) if score is not None}

    def size(self, target: Target) -> Size:
        return Size(None, None)

    def _members(self, target: Target, keys: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The sorted set and the member of each entry."""
        rankings = self._rankings(target)
        ranked = {each.name: each for each in rankings.ranked}
        for key in keys:
            ranking, group, member, *exact = orjson.loads(key)
            name = rankings.set_name(ranked[ranking], orjson.dumps(group).decode() if group else "")
            number = int(exact[0]) if exact else None
            yield name, Member(member, number, ranked[ranking].exact_bytes).raw

    def _rankings(self, target: Target) -> Rankings:
        return Rankings.of(self._settings.environment, target.view, target.generation)


def row_of(entry: str) -> str:
    """The key of the row that an entry is about."""
    key: str = orjson.loads(entry)[2]
    return key


def _entry_key(ranking: str, group: str, member: Member) -> str:
    exact = [] if member.exact is None else [str(member.exact)]  # it may not fit in 64 bits
    return orjson.dumps([ranking, orjson.loads(group or "[]"), member.key, *exact]).decode()


def _state(score: float) -> State:
    return {"score": score if math.isfinite(score) else None}
