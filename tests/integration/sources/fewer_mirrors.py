"""Some of the views of `mirrors`: of one table by its key, of one with long values, and counts that go up and down."""

from __future__ import annotations

from tests.integration.sources.mirrors import COUNTED, MIRRORS, counted_orders, customers, money_by_status, products

__all__ = ["FEWER_COUNTED", "FEWER_MIRRORS", "counted_orders", "customers", "money_by_status", "products"]

FEWER_MIRRORS = {table: view for table, view in MIRRORS.items() if view in (customers, products)}
FEWER_COUNTED = tuple(each for each in COUNTED if each[0] in (counted_orders, money_by_status))
