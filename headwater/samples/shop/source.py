"""The tables of the database `shop` that views and processes read; `compose/samples/shop_schema.sql` creates them."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from headwater import Captured, Hashed, Source, Truncated

Money = Annotated[Decimal, Field(max_digits=12, decimal_places=2)]


class Category(StrEnum):
    """What a product is, in the database's words."""

    TEA = "tea"
    COFFEE = "coffee"
    SPICES = "spices"
    BOOKS = "books"
    TABLEWARE = "tableware"


class OrderStatus(StrEnum):
    """How far an order is, in the database's words."""

    PLACED = "placed"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class Customer(Captured, table="public.customers", key="id"):
    """A customer. The phone number is captured as a hash: it finds duplicates and calls nobody."""

    id: int
    public_id: UUID
    name: str
    email: str
    phone: Annotated[str | None, Hashed()]
    born_on: date | None
    credit_limit: Money | None
    is_business: bool
    interests: list[str]
    preferences: dict[str, Any]
    created_at: datetime
    changed_at: datetime


class Product(Captured, table="public.products", key="sku"):
    """A product. Its picture is not captured."""

    sku: str
    name: str
    category: Category
    description: str
    price: Money
    weight_kg: float | None
    attributes: dict[str, Any]
    labels: list[str]
    best_before: timedelta | None
    available_from: date
    changed_at: datetime


class Order(Captured, table="public.orders", key="id"):
    """An order; its lines are in a table of their own. `shipped_at` has no zone in the database and is read as UTC."""

    id: int
    customer_id: int
    status: OrderStatus
    total: Annotated[Decimal, Field(max_digits=14, decimal_places=2)]
    currency: str
    deliver_after: time | None
    note: Annotated[str | None, Truncated(200)]
    placed_at: datetime
    shipped_at: datetime | None


class OrderLine(Captured, table="public.order_lines", key=("order_id", "line_number")):
    """A line of an order."""

    order_id: int
    line_number: int
    sku: str
    quantity: int
    unit_price: Money


shop = Source(name="shop", tables=(Customer, Product, Order, OrderLine), outbox=True)
