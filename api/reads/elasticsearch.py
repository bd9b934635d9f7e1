"""Views in Elasticsearch: rows by key, by filters, by text and place, with facets; guards and the ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from elasticsearch import ApiError, AsyncElasticsearch, BadRequestError, NotFoundError, TransportError

from api.cursor import STALE
from api.errors import BadParameter
from api.ports import Applied, GenerationGone, Live, Page, Row
from api.query import DISTANCE, RELEVANCE, Filter, Order, Query, place_column
from api.reads.postgres import places
from projections.errors import StoreUnavailable
from projections.stores.elasticsearch_mapping import GUARD
from projections.stores.names import document_id, index_name, ledger_document, ledger_index
from projections.types import ColumnType
from projections.view import DELETED, Elasticsearch, TableView

MOST_FACETS: Final = 100

Answer = TypeVar("Answer")


class ElasticsearchReader:
    """Reads the indexes of the environment."""

    name = "elasticsearch"

    def __init__(self, url: str, environment: str, patch_partitions: int) -> None:
        self._url, self._environment, self._partitions = url, environment, patch_partitions
        self._opened: AsyncElasticsearch | None = None

    async def open(self) -> None:
        """Make the client, which connects when it is first asked."""
        self._opened = AsyncElasticsearch(self._url, request_timeout=10, max_retries=1, retry_on_timeout=False)

    async def close(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()

    async def get(self, live: Live, key: str) -> Row | None:
        """The row of this key, as of now: reading by id does not wait for a refresh."""
        document = await self._document(self._index(live), document_id(key))
        return None if document is None or document.get(DELETED) else _row(live.view, document)

    async def get_many(self, live: Live, keys: Sequence[str], columns: Sequence[str] = ()) -> Mapping[str, Row]:
        """The rows of these keys with the columns, as of now."""
        ids = {document_id(key): key for key in keys}
        sent = [*(columns or live.view.types), DELETED]
        answer = await self._ask(self._client.mget(index=self._index(live), ids=list(ids), source_includes=sent))
        for each in answer["docs"]:
            if "error" in each:
                raise GenerationGone(str(each["error"]))
        found = {ids[each["_id"]]: each["_source"] for each in answer["docs"] if each["found"]}
        return {key: _row(live.view, source, columns) for key, source in found.items() if not source.get(DELETED)}

    async def find(self, live: Live, query: Query) -> Page:
        """One page of rows; finds what the last refresh made visible."""
        return await self._page(live, query, {})

    async def search(self, live: Live, query: Query) -> Page:
        """The rows that match text and place, with total and facets."""
        kinds = live.view.types
        facets = {
            column: {"terms": {"field": column, "size": MOST_FACETS}}
            for column in _settings(live.view).facets
            if kinds[column] is not ColumnType.POINT
        }
        return await self._page(live, query, {"aggregations": facets} if facets else {})

    async def refresh(self, live: Live) -> None:
        """Make everything that was applied visible."""
        await self._ask(self._client.indices.refresh(index=self._index(live)))

    async def guard(self, live: Live, key: str) -> Applied:
        """What the document says was applied to it."""
        document = await self._document(self._index(live), document_id(key), GUARD)
        return places((document or {}).get(GUARD))

    async def ledger(self, live: Live) -> Mapping[int, Applied]:
        """What the generation has applied, by patches partition."""
        return {partition: places(each["applied"]) for partition, each in (await self._ledgers(live)).items()}

    async def following(self, live: Live) -> Mapping[int, int]:
        """Where the generation's loader goes on, by patches partition."""
        return {partition: each["next"] for partition, each in (await self._ledgers(live)).items()}

    async def _ledgers(self, live: Live) -> dict[int, Mapping[str, Any]]:
        partitions = {
            ledger_document(live.view.name, live.generation, partition): partition
            for partition in range(self._partitions)
        }
        answer = await self._ask(self._client.mget(index=ledger_index(self._environment), ids=list(partitions)))
        return {partitions[each["_id"]]: each["_source"] for each in answer["docs"] if each.get("found")}

    @property
    def _client(self) -> AsyncElasticsearch:
        assert self._opened is not None, "call open first"  # noqa: S101
        return self._opened

    def _index(self, live: Live) -> str:
        return index_name(self._environment, live.view.name, live.generation)

    async def _document(self, index: str, key: str, *fields: str) -> dict[str, Any] | None:
        try:
            answer = await self._ask(self._client.get(index=index, id=key, source_includes=list(fields) or None))
        except NotFoundError:
            return None
        source: dict[str, Any] = answer["_source"]
        return source

    async def _page(self, live: Live, query: Query, more: dict[str, Any]) -> Page:
        body: dict[str, Any] = {
            "query": _matching(live.view, query),
            "sort": [_step(step, live.view, query) for step in query.order],
            "size": query.limit + 1,
            "track_total_hits": True,
            "source_includes": list(query.stored(live.view)),
            **more,
        }
        if query.highlight:
            # the encoder escapes the text itself, so that a page can show it as HTML
            texts: dict[str, Any] = {f"{column}.text": {} for column in _settings(live.view).text}
            body["highlight"] = {"fields": texts, "encoder": "html", "require_field_match": False}
        if query.beyond is not None:
            body["search_after"] = list(query.beyond)
        try:
            answer = await self._ask(self._client.search(index=self._index(live), **body))
        except BadRequestError as error:
            if query.beyond is None:
                raise
            raise BadParameter("cursor", STALE) from error
        hits = answer["hits"]["hits"]
        page = hits[: query.limit]
        return Page(
            rows=[_row(live.view, hit["_source"], query.stored(live.view)) for hit in page],
            last=page[-1]["sort"] if len(hits) > len(page) else None,
            total=answer["hits"]["total"]["value"],
            matches=[_match(query, hit) for hit in page],
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
            raise StoreUnavailable("Elasticsearch", str(error)) from error


def _settings(view: TableView) -> Elasticsearch:
    store = view.store("elasticsearch")
    assert isinstance(store, Elasticsearch)  # noqa: S101
    return store


def _matching(view: TableView, query: Query) -> dict[str, Any]:
    must: list[dict[str, Any]] = []
    if query.text:
        fields = [f"{column}.text" for column in _settings(view).text]
        must.append({"multi_match": {"query": query.text, "fields": fields, "type": "cross_fields", "operator": "and"}})
    conditions = [_condition(each) for each in query.filters]
    if query.near is not None and query.within_km is not None:
        place = {"lat": query.near[0], "lon": query.near[1]}
        conditions.append({"geo_distance": {"distance": f"{query.within_km}km", str(place_column(view)): place}})
    return {"bool": {"must": must, "filter": conditions, "must_not": [{"term": {DELETED: True}}]}}


def _condition(each: Filter) -> dict[str, Any]:
    values = [value.isoformat() if isinstance(value, datetime) else value for value in each.values]
    return (
        {"terms": {each.column: values}}
        if each.operator == "in"
        else {"range": {each.column: {each.operator: values[0]}}}
    )


def _step(step: Order, view: TableView, query: Query) -> dict[str, Any]:
    direction = "desc" if step.descending else "asc"
    if step.column == RELEVANCE:
        return {"_score": {"order": direction}}
    if step.column == DISTANCE and query.near is not None:
        place = {"lat": query.near[0], "lon": query.near[1]}
        return {"_geo_distance": {str(place_column(view)): place, "order": direction, "unit": "km"}}
    return {step.column: {"order": direction, "missing": "_last"}}


def _facet(kind: ColumnType, bucket: Mapping[str, Any]) -> Any:
    if kind is ColumnType.BOOLEAN:
        return bool(bucket["key"])
    return bucket.get("key_as_string", bucket["key"])


def _match(query: Query, hit: Mapping[str, Any]) -> dict[str, Any]:
    """How a row matches: its score, its distance, and its texts with the words that were found."""
    told = {RELEVANCE: "score", DISTANCE: "distance_km"}
    placed = zip(query.order, hit["sort"], strict=True)
    found = {told[step.column]: value for step, value in placed if step.column in told}
    if query.highlight:
        marked = hit.get("highlight", {})
        found["highlights"] = {name.removesuffix(".text"): parts for name, parts in marked.items()}
    return found


def _row(view: TableView, document: Mapping[str, Any], columns: Sequence[str] = ()) -> Row:
    return {name: document.get(name) for name in columns or view.types}
