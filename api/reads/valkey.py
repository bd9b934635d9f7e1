"""Views in Valkey: rows by key and by rankings, guards and the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
import valkey.asyncio
from valkey.exceptions import NoScriptError, ValkeyError

from headwater.api.reading import (
    Applied,
    DocumentLedgers,
    GenerationGone,
    Live,
    NotRanked,
    Page,
    Row,
    fitting,
    in_portions,
)
from headwater.api.requests.filters import Condition, Filter
from headwater.api.requests.query import Query, typed_beyond
from headwater.projections.stores.names import cache_key, cache_ledger, cache_rankings
from headwater.projections.stores.valkey.client import INCOMPLETE, unavailable
from headwater.projections.stores.valkey.rankings import Ranked, Rankings, ranked_of
from headwater.projections.table.patch import places_from_json
from headwater.projections.view import View

TIMEOUT_S = 1.0
"""Short, so that a cache without an answer does not delay an answer from another store."""
# KEYS: the set with the declarations of the rankings that the generation has, and the ranking. ARGV: its declaration;
# the number of bytes before the key in a member whose score is inexact; what comes before the key in the name of a row;
# how many rows; and, except on the first page, score and member of the last row before them. It returns the number of
# all rows and the documents of these, or nothing if the generation does not have the ranking: one of an earlier
# version serves until the view is rebuilt. A script sees one state of rows and rankings. A sorted set cannot start
# between members with equal scores, so their place is found by halving; Lua would compare texts by the server's locale,
# so bytes are compared.
READ_RANKING: Final = """
local function is_after(one, other)
    for at = 1, math.min(#one, #other) do
        local left, right = string.byte(one, at), string.byte(other, at)
        if left ~= right then return left > right end
    end
    return #one > #other
end

if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return false end
local start = 0
if ARGV[5] then
    start = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[5])
    local stop = redis.call('ZCOUNT', KEYS[2], '-inf', ARGV[5])
    while start < stop do
        local middle = math.floor((start + stop) / 2)
        local member = redis.call('ZRANGE', KEYS[2], middle, middle)[1]
        if is_after(member, ARGV[6]) then stop = middle else start = middle + 1 end
    end
end
local answer = {redis.call('ZCARD', KEYS[2])}
local found = redis.call('ZRANGE', KEYS[2], start, start + ARGV[4] - 1, 'WITHSCORES')
for at = 1, #found, 2 do
    local key, score = found[at], math.abs(tonumber(found[at + 1]))
    if score >= 2^53 and score < math.huge then key = string.sub(key, ARGV[2] + 1) end
    answer[#answer + 1] = redis.call('HGET', ARGV[3] .. key, 'doc')
end
return answer
"""
RANKING_DIGEST: Final = hashlib.sha1(READ_RANKING.encode(), usedforsecurity=False).hexdigest()


def ranking_for(view: View, query: Query) -> tuple[Ranked, str] | None:
    """The ranking that has exactly the rows of this query, in its order, and their group; None if there is none.

    It sorts by the query's column in the same direction, and then by the key; and the query has a filter for one value
    of each column of `within`, and no others.
    """
    first, *others = query.order
    if [(step.column, step.descending) for step in others] != [(view.key_name, False)]:
        return None
    values = _equal_to(query.filters)
    if values is None:
        return None
    for ranked in ranked_of(view):
        declared = ranked.ranking
        if (declared.column, declared.descending) != (first.column, first.descending):
            continue
        if values.keys() == set(declared.within):
            group = ranked.group([values[name] for name in declared.within])
            assert group is not None  # noqa: S101 - filters have no nulls
            return ranked, group
    return None


def _equal_to(filters: Sequence[Condition]) -> dict[str, Any] | None:
    """The value that each filter requires of its column; None if one requires anything else."""
    terms: dict[str, Any] = {}
    for filter_ in filters:
        if not isinstance(filter_, Filter) or filter_.operator != "in" or len(filter_.values) != 1:
            return None
        (value,) = filter_.values
        if terms.get(filter_.column, value) != value:
            return None
        if isinstance(value, datetime) and value.microsecond % 1000:  # stored times have milliseconds
            return None
        terms[filter_.column] = value
    return terms


class ValkeyReader(DocumentLedgers):
    """Reads the hashes of the environment."""

    name = "valkey"
    has_guards = True
    needs_refresh = False

    def __init__(self, url: str, environment: str) -> None:
        self._environment = environment
        self._client: valkey.asyncio.Valkey = valkey.asyncio.Valkey.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )

    async def open(self) -> None:
        """Nothing to do: the client connects at its first use."""

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The complete documents of these keys, which are stored as texts."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(self._key(live, key), "doc")
        documents = await self._ask(pipeline.execute())
        stored = zip(keys, documents, strict=True)
        rows = {key: _row(live, orjson.loads(document)) for key, document in stored if document is not None}
        if live.conditions:
            rows = {key: row for key, row in rows.items() if live.shows(row)}
        if len(rows) < len(keys):
            await self._check(live)
        return rows

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows of a ranking; raises NotRanked if there is none for this query."""
        return await in_portions(live.limited(query), lambda part: self._find(live, part))

    async def _find(self, live: Live, query: Query) -> Page:
        of_query = ranking_for(live.view, query)
        if of_query is None:
            raise NotRanked
        ranked, group = of_query
        of = Rankings.of(self._environment, live.view, live.generation)
        place = self._environment, live.view.name, live.generation
        names = [cache_rankings(*place), of.set_name(ranked, group)]
        arguments: list[Any] = [ranked.name, ranked.exact_bytes, self._key(live, ""), query.limit + 1]
        if query.beyond is not None:
            arguments += ranked.place(*typed_beyond(live.view, query))
        answer = await self._ask(self._read_ranking(*names, *arguments))
        if answer is None:  # the generation does not have the ranking, or was dropped or lost
            raise NotRanked
        total, *documents = answer
        documents = [document for document in documents if document is not None]
        page = documents[: query.limit]
        rows = [_row(live, orjson.loads(document)) for document in page[: fitting(map(len, page))]]
        shown = query.stored(live.view)
        last = [rows[-1][step.column] for step in query.order] if len(documents) > len(rows) else None
        return Page([{name: row[name] for name in shown} for row in rows], last, total if query.count else None)

    async def _read_ranking(self, *keys_and_arguments: Any) -> Any:
        """Run READ_RANKING, as a user that may not write: other scripts need the right to write to their keys."""
        client: Any = self._client  # its types are those of a client that may not be asynchronous
        try:
            return await client.evalsha_ro(RANKING_DIGEST, 2, *keys_and_arguments)
        except NoScriptError:  # a new server, or one that was restarted
            return await client.eval_ro(READ_RANKING, 2, *keys_and_arguments)

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """What the guards of these rows say was applied to them."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(self._key(live, key), "guard")
        replies = zip(keys, await self._ask(pipeline.execute()), strict=True)
        return {key: places_from_json(orjson.loads(guard)) for key, guard in replies if guard}

    async def _check(self, live: Live) -> None:
        """Raise GenerationGone if the server does not have the generation: then a missing row says nothing."""
        if not await self.ledgers(live):
            raise GenerationGone(cache_ledger(self._environment, live.view.name, live.generation))

    async def ledgers(self, live: Live) -> Mapping[int, Mapping[str, Any]]:
        """See DocumentLedgers."""
        name = cache_ledger(self._environment, live.view.name, live.generation)
        fields = await self._ask(self._client.hgetall(name))
        if any(entry.endswith(INCOMPLETE) for entry in fields.values()):
            return {}
        return {int(partition): orjson.loads(entry) for partition, entry in fields.items()}

    def _key(self, live: Live, key: str) -> str:
        return cache_key(self._environment, live.view.name, live.generation, key)

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except (ValkeyError, OSError) as error:
            raise unavailable(error) from error


def _row(live: Live, document: Mapping[str, Any]) -> Row:
    return {name: document.get(name) for name in live.view.types}
