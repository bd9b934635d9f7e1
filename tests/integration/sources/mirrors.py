"""A view of each of the shop's tables, with all its columns, and views that count their rows, in every store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from headwater import Cache, Deleted, Elasticsearch, Postgres, TableView, add, average, count, current, maximum
from headwater.eventlog.capturing import Captured, Kind
from headwater.projections.table.types import format_time
from headwater.samples.shop.source import Customer, Order, OrderLine, Product
from tests.integration.sources.captured import Row


def mirror(name: str, table: type[Captured]) -> TableView:
    """All columns of the table; the key is in `row_key` too."""
    columns = {column: current(table, column) for column in table.columns}
    stores = (Postgres(), Elasticsearch(), Cache())
    return TableView(name, "row_key", columns, stores, deleted_by=(Deleted(table),))


customers, products = mirror("mirrored_customers", Customer), mirror("mirrored_products", Product)
orders, order_lines = mirror("mirrored_orders", Order), mirror("mirrored_order_lines", OrderLine)
MIRRORS: Mapping[type[Captured], TableView] = {
    Customer: customers,
    Product: products,
    Order: orders,
    OrderLine: order_lines,
}


STORES = (Postgres(), Elasticsearch(), Cache())
counted_orders = TableView(
    "counted_orders", "status", {"rows": count(Order), "total": add({Order: "customer_id"})}, STORES
)
pieces_by_sku = TableView(
    "pieces_by_sku",
    "sku",
    {"rows": count(OrderLine), "total": add({OrderLine: "quantity"}), "mean": average({OrderLine: "quantity"})},
    STORES,
)
money_by_status = TableView(
    "money_by_status",
    "status",
    {"rows": count(Order), "total": add({Order: "total"}), "dearest": maximum({Order: "total"})},
    STORES,
)
prices_by_day = TableView(
    "prices_by_day", "available_from", {"rows": count(Product), "total": add({Product: "price"})}, STORES
)
Counted = tuple[TableView, type[Captured], str]
"""A view that counts a table's rows by its key, and the column that `total` adds up."""
COUNTED: Sequence[Counted] = (
    (counted_orders, Order, "customer_id"),
    (pieces_by_sku, OrderLine, "quantity"),
    (money_by_status, Order, "total"),
    (prices_by_day, Product, "price"),
)


def counted(view: TableView, rows: Iterable[Row], column: str) -> dict[str, dict[str, Any]]:
    """The groups of these rows of the database, as the view should show them."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = found.setdefault(str(row[view.key_name]), {"rows": 0, "total": Decimal(0)})
        group["rows"] += 1
        group["total"] += Decimal(row[column])  # of a decimal it is a text
    is_decimal = view.types["total"].is_decimal
    shown = {key: f"{group['total']:.2f}" if is_decimal else int(group["total"]) for key, group in found.items()}
    return {key: group | {"total": shown[key]} for key, group in found.items()}


def in_rows(table: type[Captured], row: Row) -> dict[str, Any]:
    """A row of the database (`captured.rows_of`) as the mirror should show it, nulls and empty lists left out."""
    found = {}
    for name, column in table.columns.items():
        value = row[name]
        if value is not None and column.kind is Kind.TIMESTAMP:
            value = format_time(value)
        if value is not None and value != []:
            found[name] = value
    return found


def shown(table: type[Captured], state: Mapping[str, Any]) -> dict[str, Any]:
    """The columns in a stored state, in the form of `in_rows`."""
    found = {}
    for name, column in table.columns.items():
        value = state.get(name)
        if value is not None and column.kind in (Kind.JSON, Kind.ARRAY):
            value = json.loads(value)
        if value is not None and value != []:
            found[name] = value
    return found
