"""A ranking that is added to a live generation is the one that would have been there from the start."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest
import valkey

from headwater.api.ports import NotRanked
from headwater.api.reads.valkey import ValkeyReader
from headwater.api.requests.query import read_query
from headwater.projections.errors import GenerationMissing
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Cache, Postgres
from headwater.projections.stores.names import cache_ranking
from headwater.projections.stores.open import backend
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.added_rankings import add_rankings
from headwater.projections.stores.valkey.ranking_entries import ValkeyRankings, row_of
from headwater.projections.table.reference import fold, states
from headwater.projections.testing.contracts import load
from headwater.projections.testing.histories import History
from headwater.replay.comparison import compare
from tests.contracts.opened_stores import OnValkey
from tests.contracts.test_rankings import LIVE, RANKINGS, TARGET, VIEW, check, happened, queries, reading, sets
from tests.contracts.test_rankings import settings as settings  # noqa: PLC0414 - a fixture
from tests.contracts.test_view_stores import START

FIRST: Final = RANKINGS[:2]
BEFORE: Final = replace(VIEW, stores=(Postgres(), Cache(rankings=FIRST)))
"""The view as it was declared when its rows were built."""
OLD: Final = Target(BEFORE, 1)
ADDED: Final = [f"ranking {each.declaration}" for each in RANKINGS[2:]]


class Killed(BaseException):
    """What fills rankings ends here."""


@pytest.fixture
def cache(settings: StoreSettings) -> Iterator[OnValkey]:
    with OnValkey(settings) as server:
        store = server.open()
        store.create(OLD, {}, START)
        store.finish(OLD)
        yield server


def missing(cache: OnValkey) -> list[str]:
    return list(backend("valkey").missing(cache.settings, TARGET))


def is_answered(cache: OnValkey, sort: str) -> bool:
    async def read(cached: ValkeyReader, _: object) -> bool:
        try:
            await cached.find(LIVE, read_query(VIEW, [("sort", sort)]))
        except NotRanked:
            return False
        return True

    return reading(cache.settings, read)


class Writing:
    """Loads a history batch by batch, by code that declares the new rankings and by code that does not."""

    def __init__(self, cache: OnValkey, told: History, chance: random.Random) -> None:
        self._stores = [(OLD, cache.open()), (TARGET, cache.open())]
        self._told, self._chance = told, chance
        self._at = dict.fromkeys(told.patches, 0)

    def step(self) -> None:
        """One batch of each partition, by one of the two."""
        target, store = self._chance.choice(self._stores)
        ends = {each: at + self._chance.randrange(1, 12) for each, at in self._at.items()}
        store.apply([target], {each: self._told.batch(each, self._at[each], end) for each, end in ends.items()})
        self._at = {each: min(end, len(self._told.patches[each])) for each, end in ends.items()}

    def end(self) -> None:
        """All that is left."""
        while any(at < len(self._told.patches[each]) for each, at in self._at.items()):
            self.step()


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_one_that_was_there_from_the_start_whoever_writes_and_dies_meanwhile(
    cache: OnValkey, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("headwater.projections.stores.valkey.added_rankings.CHUNK_ROWS", 5)
    told, chance = happened(seed, length=400), random.Random(seed)
    writing = Writing(cache, told, chance)
    for _ in range(chance.randrange(10)):
        writing.step()
    moments, killed = set[str](), set[str]()

    def fault(moment: str) -> None:
        moments.add(moment)
        if chance.random() < 0.5:
            writing.step()
        if moment not in killed or chance.random() < 0.03:
            killed.add(moment)
            raise Killed(moment)

    while missing(cache):
        try:
            add_rankings(cache.settings, TARGET, fault)
        except Killed:
            continue
    writing.end()
    assert killed == moments == {"marked", "rows read", "filled"}
    assert check(cache, fold(VIEW, told.sources)) > 20


def test_queries_use_it_once_it_is_complete(cache: OnValkey) -> None:
    told = happened(5)
    load(cache.open(), OLD, told, random.Random(5))
    assert missing(cache) == ADDED
    assert is_answered(cache, RANKINGS[0].sort) and not is_answered(cache, "at")
    seen = list[bool]()
    added = add_rankings(cache.settings, TARGET, lambda _: seen.append(is_answered(cache, "at")))
    assert added == ADDED and missing(cache) == []
    assert seen[0] is False and is_answered(cache, "at")
    assert add_rankings(cache.settings, TARGET) == []


def test_two_that_fill_it_while_others_write_do_no_harm(cache: OnValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.stores.valkey.added_rankings.CHUNK_ROWS", 5)
    told, begin = happened(13, length=400), threading.Barrier(4)

    def together(work: Callable[[], object]) -> None:
        begin.wait()
        work()

    def write(target: Target, number: int) -> None:
        load(cache.open(), target, told, random.Random(number))

    with ThreadPoolExecutor(4) as threads:
        work: list[Callable[[], object]] = [lambda: write(OLD, 1), lambda: write(TARGET, 2)]
        work += [lambda: add_rankings(cache.settings, TARGET)] * 2
        for done in [threads.submit(together, each) for each in work]:
            done.result()
    assert missing(cache) == []
    check(cache, fold(VIEW, told.sources))


def test_one_that_is_no_longer_declared_is_kept(cache: OnValkey) -> None:
    told = happened(17)
    add_rankings(cache.settings, TARGET)
    bare = Target(replace(VIEW, stores=(Postgres(), Cache())), 1)
    load(cache.open(), bare, told, random.Random(17))
    assert not backend("valkey").missing(cache.settings, bare)
    check(cache, fold(VIEW, told.sources))


def test_a_generation_that_is_dropped_meanwhile_leaves_nothing(cache: OnValkey) -> None:
    load(cache.open(), OLD, happened(29), random.Random(29))

    def fault(moment: str) -> None:
        if moment == "rows read":
            cache.open().drop(TARGET)

    with pytest.raises(GenerationMissing):
        add_rankings(cache.settings, TARGET, fault)
    assert sets(cache) == {}
    assert missing(cache) == [] and add_rankings(cache.settings, TARGET) == []


def test_a_comparison_leaves_it_out_until_both_have_it(cache: OnValkey) -> None:
    told, rebuilt = happened(31), Target(VIEW, 2)
    load(cache.open(), OLD, told, random.Random(1))
    opened = cache.open()
    opened.create(rebuilt, {}, START)
    opened.finish(rebuilt)
    load(opened, rebuilt, told, random.Random(2))

    def differences() -> tuple[int, int]:
        reader = ValkeyRankings(cache.settings, [TARGET, rebuilt])
        found = compare(reader, "valkey rankings", TARGET, rebuilt, lambda: frozenset, row_of)
        return found.rows, found.differences

    before, none = differences()
    add_rankings(cache.settings, TARGET)
    after, still_none = differences()
    assert none == still_none == 0
    assert 0 < before < after
    with valkey.Valkey.from_url(cache.settings.valkey) as client:
        client.zadd(cache_ranking(cache.settings.environment, *TARGET.id, RANKINGS[2].declaration, ""), {"gone": 1})
    assert differences()[1] == 1


def test_rows_that_are_replaced_one_by_one_are_in_it(cache: OnValkey) -> None:
    told = happened(37)
    load(cache.open(), OLD, told, random.Random(37))
    opened, folded = backend("valkey").single_rows, states(VIEW, told.sources)
    assert opened is not None
    single = opened(cache.settings)
    key = next(iter(fold(VIEW, told.sources)))

    def fault(moment: str) -> None:
        if moment == "marked":
            other = next(state for other, state in folded.items() if other != key)
            assert single.replace(OLD, key, single.read(OLD, key), other)
        if moment == "filled":
            assert single.replace(OLD, key, single.read(OLD, key), folded[key])

    add_rankings(cache.settings, TARGET, fault)
    check(cache, fold(VIEW, told.sources))
    assert queries(fold(VIEW, told.sources), 3)
