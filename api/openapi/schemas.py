"""The OpenAPI document's schemas and parameters, from commands' models and views' column types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from headwater.api.openapi.components import (
    AFTER,
    COLUMNS,
    GENERATION,
    PERSONAL_COLUMN,
    PROBLEM_SCHEMA,
    TEXT,
    TRACING,
    VISIBLE,
    Schema,
    body_components,
    filtered,
    header,
)
from headwater.api.openapi.model_schemas import json_column, message_components, reference
from headwater.api.requests.filters import FILTER_DESCRIPTIONS, LISTS, MAX_ORS, OR, OR_DESCRIPTION, SEVERAL, operators
from headwater.api.requests.ndjson import MEDIA_TYPE as NDJSON
from headwater.api.requests.query import DISTANCE, MAX_ROWS, RELEVANCE, every_column, place_column, sortable
from headwater.api.service import Service
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.table.json_text import JsonForm
from headwater.projections.table.lookups import looked_up_forms, looked_up_types
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View


def answer(description: str, schema: str, headers: Schema | None = None) -> Schema:
    """An answer whose body is the component `schema`."""
    content = {"application/json": {"schema": reference(schema)}}
    return {"description": description, "content": content, "headers": headers or {}}


def row_answer(description: str, schema: str) -> Schema:
    """An answer with rows of a view, whose body is the component `schema`."""
    return answer(description, schema, GENERATION)


def operation(
    tag: str, name: str, summary: str, description: str, scope: str, answers: Mapping[int | str, Any], **request: Any
) -> Schema:
    """An operation of something that is declared, which a general route answers; request: its parameters and body."""
    return {
        "tags": [tag],
        "summary": summary,
        "description": description.strip(),
        "operationId": name,
        **request,
        "responses": {str(status): answer for status, answer in answers.items()},
        "security": [{"caller": [scope]}],
    }


def command_request(command_type: str) -> Schema:
    """Body and headers of a command's route."""
    schema = reference(command_type)
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "parameters": [
            header(
                "Idempotency-Key",
                VISIBLE,
                "the command id, unique per stream: sending the command again with it returns its first receipt",
            ),
            header(
                "If-Match",
                {"type": "string", "pattern": '^"(0|[1-9][0-9]{0,17})"$'},
                "the expected version of the stream",
            ),
            header("If-None-Match", {"type": "string", "enum": ["*"]}, "the stream must not exist"),
            *TRACING,
        ],
    }


def bulk_request() -> Schema:
    """Body and headers of the route for many commands."""
    return {
        "requestBody": {"required": True, "content": {NDJSON: {"schema": reference("CommandLine")}}},
        "parameters": list(TRACING),
    }


def observation_request(observation_type: str) -> Schema:
    """Body and headers of an observation's route."""
    schema = reference(f"{observation_type}.report")
    content = {"application/json": {"schema": schema}, NDJSON: {"schema": schema}}
    parameters = [parameter for parameter in TRACING if parameter["name"] != "X-Causation-ID"]
    return {"requestBody": {"required": True, "content": content}, "parameters": parameters}


def waiting_parameters() -> list[Schema]:
    """The parameters that wait for a position."""
    return [
        query("after", AFTER, "answer only after the view has applied these positions"),
        query(
            "wait_ms",
            {"type": "integer", "minimum": 0, "maximum": 30000},
            "how long to wait for `after`, in milliseconds",
        ),
    ]


def row_parameters(view: View) -> list[Schema]:
    """The parameters of every route that returns rows."""
    columns = f"the columns to return, separated by commas: {', '.join(every_column(view))}"
    return [query("fields", TEXT, columns), *waiting_parameters()]


def keys_parameter(maximum: int) -> Schema:
    """The keys to look up."""
    schema = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": maximum}
    return query("key", schema, "the key of a row; repeat it for several") | {"required": True}


def following_parameters(max_keys: int, max_ms: int) -> list[Schema]:
    """The parameters of following changes."""
    return [
        query("key", {"type": "array", "items": TEXT, "maxItems": max_keys}, "follow these rows only"),
        query("from", TEXT, "the id of the last received event, for clients that cannot send Last-Event-ID"),
        query("for_ms", {"type": "integer", "minimum": 1, "maximum": max_ms}, "end after this time, in milliseconds"),
        header("Last-Event-ID", TEXT, "the id of the last received event"),
    ]


def query_parameters(view: View, *, searching: bool = False) -> list[Schema]:
    """Every parameter of a view's rows: filters by column type, order, paging, waiting; and those of a search."""
    place = place_column(view) if searching else None
    extra = ([RELEVANCE] if searching else []) + ([DISTANCE] if place else [])
    order = f"columns, the most important first, with - for descending: {', '.join([*sortable(view), *extra])}"
    ranked = []
    for ranking in (ranking.ranking for ranking in ranked_of(view)):
        within = f" with a filter for one value of {' and '.join(ranking.within)}" if ranking.within else ""
        ranked.append(f"{ranking.sort}{within}")
    if ranked and not searching:
        order += f"; fastest: {', '.join(ranked)}"
    parameters = [
        query("sort", TEXT, order),
        query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": 50}, "rows on a page"),
        query("cursor", TEXT, "the `next` of the previous page"),
        query("count", {"type": "boolean"}, "also return the number of rows on all pages, as `total`"),
        *row_parameters(view),
        query(OR, {"type": "array", "items": TEXT, "maxItems": MAX_ORS}, OR_DESCRIPTION),
    ]
    if searching:
        parameters.append(query("q", {"type": "string", "maxLength": 1000}, "words; a row must contain all of them"))
        parameters.append(
            query("highlight", {"type": "boolean"}, "also return where the words were found; requires `q`")
        )
    if place:
        parameters.append(
            query("near", {"type": "string", "examples": ["38.6,-121.4"]}, "latitude,longitude in degrees")
        )
        parameters.append(
            query(
                "within_km",
                {"type": "number", "exclusiveMinimum": 0, "maximum": 20040},
                "only rows within this distance; requires `near`",
            )
        )
    taken = {parameter["name"] for parameter in parameters}
    finding = (store for store in view.stores if (store.searches if searching else store.answers and store.finds))
    sealed = view.personal.difference(*(store.clear for store in islice(finding, 1)))
    for column, kind in ((name, type_) for name, type_ in view.types.items() if name not in sealed):
        for operator in operators(kind):
            plain = operator == "eq" and column not in taken
            parameters.append(_filter_parameter(column if plain else f"{column}.{operator}", operator, filtered(kind)))
    return parameters


def _filter_parameter(name: str, operator: str, value: Schema) -> Schema:
    several = {"type": "array", "items": value}
    if operator in LISTS:
        return query(name, several, FILTER_DESCRIPTIONS[operator]) | {"style": "form", "explode": False}
    one = {"type": "boolean"} if operator == "is_null" else value
    return query(name, several if operator in SEVERAL else one, FILTER_DESCRIPTIONS[operator])


def query(name: str, schema: Schema, description: str, *, required: bool = False) -> Schema:
    """A query parameter; one with several values is repeated."""
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def components(service: Service) -> Schema:
    """Every schema that the routes refer to, by name."""
    schemas: Schema = {"Problem": PROBLEM_SCHEMA, **body_components()}
    schemas |= message_components(service.commands, service.observations)
    for view in service.views.values():
        schemas |= _view_components(view, looked_up_types(view, service.views), service.views)
    return schemas


def _view_components(view: View, looked_up: Mapping[str, ColumnType], views: Mapping[str, View]) -> Schema:
    columns, inner = _json_columns(view, views)
    columns = {
        name: COLUMNS[kind]
        if name == view.key_name
        else PERSONAL_COLUMN
        if name in view.personal
        else _nullable(columns.get(name, COLUMNS[kind]))
        for name, kind in view.types.items()
    } | {name: columns.get(name, COLUMNS[kind]) for name, kind in looked_up.items()}
    for name in looked_up:
        lookup = view.looked_up[name]
        description = f"looked up in {lookup.view} by {lookup.on} when the row is read; cannot be filtered or sorted by"
        columns[name] = {**_nullable(columns[name]), "description": description}
    row = {
        "type": "object",
        "description": view.doc,
        "properties": columns,
        "additionalProperties": False,
    }
    facet = {
        "type": "object",
        "properties": {"value": {}, "count": {"type": "integer"}},
        "required": ["value", "count"],
    }
    page: Schema = {
        "rows": {"type": "array", "items": {"$ref": f"#/components/schemas/{view.name}.row"}},
        "next": {"type": ["string", "null"], "description": "the cursor of the next page; null on the last page"},
        "links": {"type": "object", "additionalProperties": TEXT},
    }
    texts = {"type": "array", "items": TEXT}
    match = {
        "type": "object",
        "properties": {
            "score": {"type": "number"},
            "distance_km": {"type": "number"},
            "highlights": {
                "type": "object",
                "additionalProperties": texts,
                "description": "HTML, with the words in <em>",
            },
        },
    }
    matches = "how each row matches, in the order of `rows`; only with `q`, `near` or `highlight`"
    schemas = {
        **page,
        "matches": {"type": "array", "items": match, "description": matches},
        "total": {"type": "integer", "minimum": 0},
        "facets": {"type": "object", "additionalProperties": {"type": "array", "items": facet}},
    }
    nullable = _nullable({"$ref": f"#/components/schemas/{view.name}.row"})
    by_keys = {"rows": {"type": "array", "items": nullable}}
    total = {"type": "integer", "minimum": 0, "description": "rows on all pages, with `count=true`"}
    components = {
        f"{view.name}.row": row,
        f"{view.name}.page": _object({**page, "total": total}, optional=("total",)),
        f"{view.name}.rows": _object(by_keys),
    }
    searched = any(store.searches for store in view.stores)
    return inner | components | ({f"{view.name}.found": _object(schemas, optional=("matches",))} if searched else {})


def _json_columns(view: View, views: Mapping[str, View]) -> tuple[dict[str, Schema], Schema]:
    """The schemas of a row's columns of JSON, also of looked-up ones, and the components that these refer to."""
    forms = {**looked_up_forms(view, views), **view.json_forms}
    hidden = view.personal | {
        name for name, lookup in view.looked_up.items() if lookup.columns[name] in views[lookup.view].personal
    }
    schemas = {
        name: json_column(f"{view.name}.row.{name}", form)
        for name, form in forms.items()
        if isinstance(form, JsonForm) and name not in hidden  # what is hidden does not fit the schema
    }
    return {name: schema for name, (schema, _) in schemas.items()}, {
        name: inner for _, components in schemas.values() for name, inner in components.items()
    }


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: Schema, optional: Sequence[str] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}
