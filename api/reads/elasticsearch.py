"""Views in Elasticsearch: rows by key, by filters, by text and place, with facets; guards and the ledger."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson
from elasticsearch import ApiError, AsyncElasticsearch, BadRequestError, NotFoundError, TransportError

from headwater.api.reading import (
    Applied,
    DocumentLedgers,
    GenerationGone,
    Live,
    Page,
    Row,
    fitting,
    in_portions,
)
from headwater.api.reads.elasticsearch_order import position, search_after, sorting
from headwater.api.requests.filters import AnyOf, Condition, in_either_case
from headwater.api.requests.query import DISTANCE, RELEVANCE, Query, place_column
from headwater.projections.stores.declared import Elasticsearch
from headwater.projections.stores.elasticsearch.client import IndexGone, documents, unavailable
from headwater.projections.stores.elasticsearch.schema import (
    COMPLETE,
    GUARD,
    STATE,
    field_of,
    has_text,
    text_of,
    value_of,
)
from headwater.projections.stores.names import document_id, index_name, ledger_document, ledger_index
from headwater.projections.table.decimals import exact_decimal
from headwater.projections.table.layout import DELETED
from headwater.projections.table.patch import places_from_json
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

SURE_S: Final = 1.0
"""How long an index that was complete is not looked at again: most reads ask for nothing more."""
Ask = Callable[[Awaitable[Any]], Awaitable[Any]]
ANSWER_S: Final = 10
"""How long a request may take."""
MAX_FACETS: Final = 100
HIGHLIGHTED_CHARACTERS: Final = 1_000_000
"""Of each text: Elasticsearch refuses to analyse more for one answer, and by default fails the request."""
MILLISECOND: Final = timedelta(milliseconds=1)
EXACT_BOUNDS: Final = Context(prec=200)
"""Of the digits of a decimal in a filter, which are fewer."""
LATEST: Final = datetime.max.replace(tzinfo=UTC) - MILLISECOND
Answer = TypeVar("Answer")


class CompleteIndexes:
    """The indexes that were complete a moment ago."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    async def check(self, client: AsyncElasticsearch, index: str, ask: Ask) -> None:
        """Raise GenerationGone if the index is gone, or lacks rows of bulk. ask: awaits a call, translates errors."""
        now_s = time.monotonic()
        if now_s < self._until_s.get(index, now_s):
            return
        self._until_s.pop(index, None)
        # with "error", or the answer for a missing index would be empty
        answer = await ask(client.indices.get_mapping(index=index, filter_path="*.mappings._meta,error"))
        for index_data in answer.body.values():
            if not index_data["mappings"]["_meta"].get(COMPLETE):
                raise GenerationGone(f"{index} lacks rows")
        self._until_s[index] = now_s + SURE_S


BELOW_ALL, ABOVE_ALL = "/", "2"
"""Before and after every text of a decimal."""


class ElasticsearchReader(DocumentLedgers):
    """Reads the indexes of the environment."""

    name = "elasticsearch"
    has_guards = True
    needs_refresh = True

    def __init__(self, url: str, environment: str, patch_partitions: int) -> None:
        self._url, self._environment, self._partitions = url, environment, patch_partitions
        self._opened: AsyncElasticsearch | None = None
        self._complete = CompleteIndexes()

    async def open(self) -> None:
        """Make the client, which connects at its first use."""
        self._opened = AsyncElasticsearch(self._url, request_timeout=ANSWER_S, max_retries=1, retry_on_timeout=False)

    async def close(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The current rows of these keys with the columns."""
        shown = _fields(live.view, columns or tuple(live.view.types))
        sources = await self._sources(live, keys, [*shown, *live.compared, DELETED])
        return {
            key: _row(live.view, source, columns)
            for key, source in sources.items()
            if not source.get(DELETED) and live.shows(source)
        }

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows, as of the last refresh."""
        query = live.limited(query)
        return await in_portions(query, lambda part: self._page(live, part, {"track_total_hits": part.count}))

    async def search(self, live: Live, query: Query) -> Page:
        """The rows that match text and place, with total and facets."""
        query = live.limited(query)
        kinds = live.view.types
        facets = {
            column: {"terms": {"field": field_of(column, kinds[column]), "size": MAX_FACETS}}
            for column in _settings(live.view).facets
            if kinds[column] is not ColumnType.POINT
        }
        counted = {"track_total_hits": True} | ({"aggregations": facets} if facets else {})

        async def read(part: Query) -> Page:
            # the first part has the total and the facets of all
            return await self._page(live, part, counted if part.beyond == query.beyond else {"track_total_hits": False})

        return await in_portions(query, read)

    async def refresh(self, live: Live) -> None:
        """Make everything that was applied visible."""
        await self._ask(self._client.indices.refresh(index=self._index(live)))

    async def guards(self, live: Live, keys: Sequence[str]) -> Mapping[str, Applied]:
        """What the guards of these documents say was applied to them."""
        sources = await self._sources(live, keys, [GUARD])
        return {key: places_from_json(source.get(GUARD)) for key, source in sources.items()}

    async def ledgers(self, live: Live) -> Mapping[int, Mapping[str, Any]]:
        """See DocumentLedgers."""
        partitions = {
            ledger_document(live.view.name, live.generation, partition): partition
            for partition in range(self._partitions)
        }
        answer = await self._ask(self._client.mget(index=ledger_index(self._environment), ids=list(partitions)))
        try:
            return {
                partitions[document["_id"]]: document["_source"]
                for document in documents(answer.body)
                if document["found"]
            }
        except IndexGone:
            return {}

    @property
    def _client(self) -> AsyncElasticsearch:
        assert self._opened is not None, "call open first"  # noqa: S101
        return self._opened

    def _index(self, live: Live) -> str:
        return index_name(self._environment, live.view.name, live.generation)

    async def _checked(self, live: Live) -> str:
        """The index of a generation; raises GenerationGone if it lacks rows of bulk: a missing row says nothing."""
        index = self._index(live)
        await self._complete.check(self._client, index, self._ask)
        return index

    async def _sources(self, live: Live, keys: Sequence[str], fields: Sequence[str]) -> dict[str, dict[str, Any]]:
        """These fields of the current documents of rows, by key."""
        index, ids = await self._checked(live), {document_id(key): key for key in keys}
        answer = await self._ask(self._client.mget(index=index, ids=list(ids), source_includes=fields))
        try:
            return {
                ids[document["_id"]]: document["_source"] for document in documents(answer.body) if document["found"]
            }
        except IndexGone as error:
            raise GenerationGone(str(error)) from error

    async def _page(self, live: Live, query: Query, more: dict[str, Any]) -> Page:
        body: dict[str, Any] = {
            "query": _matching(live, query),
            "sort": [clause for step in query.order for clause in sorting(step, live.view, query)],
            "size": query.limit + 1,
            "source_includes": _fields(live.view, query.stored(live.view)),
            **more,
        }
        if query.highlight:
            # Elasticsearch's encoder escapes the text, so that a page can show it as HTML
            texts: dict[str, Any] = {f"{column}.text": {} for column in _searched(live.view, query)}
            body["highlight"] = {
                "fields": texts,
                "encoder": "html",
                "require_field_match": False,
                "max_analyzed_offset": HIGHLIGHTED_CHARACTERS,
            }
        if query.beyond is not None:
            body["search_after"] = search_after(live.view, query)
        answer = await self._ask(self._client.search(index=await self._checked(live), **body))
        hits = answer["hits"]["hits"]
        page = hits[: query.limit]
        page = page[: fitting(len(orjson.dumps(hit["_source"])) for hit in page)]
        return Page(
            rows=[_row(live.view, hit["_source"], query.stored(live.view)) for hit in page],
            last=position(live.view, query, page[-1]["sort"]) if len(hits) > len(page) else None,
            total=answer["hits"].get("total", {}).get("value"),
            matches=[_match(live.view, query, hit) for hit in page] if query.includes_matches else (),
            facets={
                name: [(_facet(live.view.types[name], bucket), bucket["doc_count"]) for bucket in facet["buckets"]]
                for name, facet in answer.get("aggregations", {}).items()
            },
        )

    async def _ask(self, call: Awaitable[Answer]) -> Answer:
        try:
            return await call
        except NotFoundError as error:
            if isinstance(error.body, dict) and "error" in error.body:
                raise GenerationGone(str(error)) from error
            raise
        except BadRequestError:
            raise
        except (TransportError, ApiError) as error:
            raise unavailable(error) from error


def _settings(view: View) -> Elasticsearch:
    store = view.store("elasticsearch")
    assert isinstance(store, Elasticsearch)  # noqa: S101
    return store


def _searched(view: View, query: Query) -> list[str]:
    """The columns in which words are looked for."""
    return [column for column in _settings(view).text if column not in query.unsearched]


def _fields(view: View, columns: Sequence[str]) -> list[str]:
    """The fields of documents with these columns: of those in clear, the ciphertexts, which are opened like others."""
    clear = _settings(view).clear
    return [f"{STATE}.{name}" if name in clear else name for name in columns]


def _matching(live: Live, query: Query) -> dict[str, Any]:
    view, must = live.view, list[dict[str, Any]]()
    if query.text:
        fields = [f"{column}.text" for column in _searched(view, query)]
        words = {"multi_match": {"query": query.text, "fields": fields, "type": "cross_fields", "operator": "and"}}
        # scores depend on how often a word is in all rows, also in those that do not exist for the reader
        must.append({"constant_score": {"filter": words}} if live.of_reader else words)
    conditions = [matching(filter_, view.types) for filter_ in query.filters]
    if query.near is not None and query.within_km is not None:
        place = {"lat": query.near[0], "lon": query.near[1]}
        conditions.append({"geo_distance": {"distance": f"{query.within_km}km", str(place_column(view)): place}})
    return {"bool": {"must": must, "filter": conditions, "must_not": [{"term": {DELETED: True}}]}}


def matching(condition: Condition, kinds: Mapping[str, ColumnType]) -> dict[str, Any]:
    """The condition as a query; a missing value satisfies none but `is_null`. kinds: of the columns."""
    if isinstance(condition, AnyOf):
        return _any(matching(filter_, kinds) for filter_ in condition.filters)
    column, values = field_of(condition.column, kinds[condition.column]), condition.values
    kind = kinds[condition.column]
    match condition.operator:
        case "is_null":
            return {"bool": {"must_not": _there(column)}} if values[0] else _there(column)
        case "in":
            return {"terms": {column: _terms(values, kind)}}
        case "not_in":
            return {"bool": {"filter": _there(column), "must_not": {"terms": {column: _terms(values, kind)}}}}
        case "prefix":
            return _any({"prefix": {column: {"value": value}}} if value else _there(column) for value in values)
        case "ieq" | "iprefix" as operator:
            end = ".*" if operator == "iprefix" else ""
            patterns = [in_either_case(value) + end for value in values]
            return _any({"regexp": {column: {"value": pattern, "flags": "NONE"}}} for pattern in patterns)
        case _ as operator:
            return {"range": {column: {operator: _bound(operator, values[0], kind)}}}


def _any(queries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}


def _there(column: str) -> dict[str, Any]:
    """A row with a value in `column`, also one that is too long to be indexed."""
    return _any([{"exists": {"field": column}}, {"term": {"_ignored": column}}])


def _terms(values: Iterable[Any], kind: ColumnType) -> list[Any]:
    """The terms that equal any of the values: Lucene has two zeros, and no times finer than milliseconds."""
    terms: list[Any] = []
    for value in values:
        if isinstance(value, datetime):
            terms += [] if value.microsecond % 1000 else [_time(value)]
        elif isinstance(value, float) and value == 0:
            terms += [0.0, -0.0]
        elif isinstance(value, Decimal):
            decimal_value = exact_decimal(value, kind.digits, kind.places)  # no row has one with more digits
            terms += [] if decimal_value is None else [text_of(decimal_value, kind)]
        elif isinstance(value, date | UUID):
            terms.append(str(value))
        else:
            terms.append(value)
    return terms


def _time(time: datetime) -> str:
    """With milliseconds: Elasticsearch treats a time without them as the whole second."""
    return time.isoformat(timespec="milliseconds")


def _decimal_bound(operator: str, value: Decimal, kind: ColumnType) -> str:
    """The text of the next decimal that a column can have; that of none, if the limit is beyond all of them."""
    rounding = ROUND_CEILING if operator in ("gte", "lt") else ROUND_FLOOR
    limit = Decimal(10) ** (kind.digits - kind.places)
    if abs(value) >= limit:
        return ABOVE_ALL if value > 0 else BELOW_ALL
    next_one = value.quantize(Decimal((0, (1,), -kind.places)), rounding, EXACT_BOUNDS)
    return (ABOVE_ALL if value > 0 else BELOW_ALL) if abs(next_one) >= limit else text_of(next_one, kind)


def _bound(operator: str, value: Any, kind: ColumnType) -> Any:
    """The limit of a range, as a value that a column can have."""
    if isinstance(value, Decimal):
        return _decimal_bound(operator, value, kind)
    if isinstance(value, datetime):
        whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
        up = operator in ("gte", "lt") and whole < value < LATEST
        return _time(whole + MILLISECOND if up else whole)
    if isinstance(value, float) and value == 0:
        return -0.0 if operator in ("gte", "lt") else 0.0
    return str(value) if isinstance(value, date | UUID) else value


def _facet(kind: ColumnType, bucket: Mapping[str, Any]) -> Any:
    if kind is ColumnType.BOOLEAN:
        return bool(bucket["key"])
    if has_text(kind):
        return value_of(bucket["key"], kind)
    return bucket.get("key_as_string", bucket["key"])


def _match(view: View, query: Query, hit: Mapping[str, Any]) -> dict[str, Any]:
    """How a row matches: its score, its distance, and its texts with the found words."""
    names = {RELEVANCE: "score", DISTANCE: "distance_km"}
    placed = zip(query.order, position(view, query, hit["sort"]), strict=True)
    values = {names[step.column]: value for step, value in placed if query.computes(step)}
    if query.highlight:
        marked = hit.get("highlight", {})
        values["highlights"] = {name.removesuffix(".text"): parts for name, parts in marked.items()}
    return values


def _row(view: View, document: Mapping[str, Any], columns: Sequence[str] = ()) -> Row:
    clear, state = _settings(view).clear, document.get(STATE, {})
    return {name: (state if name in clear else document).get(name) for name in columns or view.types}
