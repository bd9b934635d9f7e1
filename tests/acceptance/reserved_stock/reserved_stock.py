"""A view of what is reserved, in every store; its events follow from commands of a process."""

from __future__ import annotations

from headwater import Cache, Elasticsearch, Postgres, TableView, add
from headwater.samples.orders.domain.stock import Reserved

reserved_stock = TableView(
    name="reserved_stock",
    key="sku",
    columns={"pieces": add({Reserved: "quantity"})},
    stores=(Postgres(), Elasticsearch(), Cache()),
    doc="How much of a product was ever reserved.",
)
