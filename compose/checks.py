"""Compares the stores with pandas. Each store is read with its own client, not through Headwater."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import psycopg
import valkey
from elasticsearch import Elasticsearch, helpers
from psycopg.rows import dict_row

from compose import sacramento
from compose.settings import Endpoints

CARD_COLUMNS = ("city", "property_type", "beds", "baths", "square_feet", "status", "price")
SEARCH_COLUMNS = ("description", "zip", *CARD_COLUMNS)
LISTING_COLUMNS = (*SEARCH_COLUMNS, "latitude", "longitude", "first_price", "price_changes", "sold_for")

Rows = dict[str, dict[str, Any]]


def mismatches(frame: pd.DataFrame, endpoints: Endpoints, environment: str) -> list[str]:
    """Every difference between a view and `frame`, as a text; empty if they are equal."""
    visible = frame[frame["status"] != "withdrawn"]
    found: list[str] = []
    with psycopg.connect(endpoints.postgres, row_factory=dict_row) as connection:
        listings = _table(connection, environment, "listings", "listing_id")
        market = _table(connection, environment, "city_market", "city")
    found += _differences("listings", _expected(frame, LISTING_COLUMNS), listings)
    found += _differences("city_market", _rows(sacramento.city_market(frame)), market)
    with Elasticsearch(endpoints.elasticsearch) as client:
        found += _differences("listing_search", _expected(visible, SEARCH_COLUMNS), _index(client, environment))
    with valkey.Valkey.from_url(endpoints.valkey, decode_responses=True) as cache:
        found += _differences("listing_card", _expected(visible, CARD_COLUMNS), _cards(cache, environment))
    return found


def _table(connection: psycopg.Connection[dict[str, Any]], schema: str, view: str, key: str) -> Rows:
    query = psycopg.sql.SQL("SELECT * FROM {}").format(psycopg.sql.Identifier(schema, view))
    return {row[key]: row for row in connection.execute(query)}


def _index(client: Elasticsearch, environment: str) -> Rows:
    alias = f"{environment}.listing_search"
    client.indices.refresh(index=alias)
    hits = helpers.scan(client, index=alias, query={"query": {"bool": {"must_not": {"term": {"_deleted": True}}}}})
    return {hit["_source"]["listing_id"]: hit["_source"] for hit in hits}


def _cards(cache: valkey.Valkey, environment: str) -> Rows:
    generation = cache.get(f"{environment}:listing_card:generation")
    prefix = f"{environment}:listing_card:g{generation}:"
    found: Rows = {}
    for key in cache.scan_iter(f"{prefix}*", count=1000):
        document: Any = cache.hget(key, "doc")
        if document is not None:
            found[key.removeprefix(prefix)] = json.loads(document)
    return found


def _expected(frame: pd.DataFrame, columns: tuple[str, ...]) -> Rows:
    return _rows(frame[list(columns)])


def _rows(frame: pd.DataFrame) -> Rows:
    return {str(key): {str(name): _plain(value) for name, value in row.items()} for key, row in frame.iterrows()}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _differences(view: str, expected: Mapping[str, Mapping[str, Any]], actual: Rows) -> Iterator[str]:
    for key in sorted(expected.keys() | actual.keys()):
        if key not in actual:
            yield f"{view}/{key} is missing"
        elif key not in expected:
            yield f"{view}/{key} should not be there"
        else:
            for name, value in expected[key].items():
                if not _equal(value, actual[key].get(name)):
                    yield f"{view}/{key} has {name} {actual[key].get(name)!r}, pandas says {value!r}"


def _equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float | int):
        return math.isclose(expected, actual, rel_tol=1e-12)
    return bool(expected == actual)
