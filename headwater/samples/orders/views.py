"""The lines of large orders, with their products and taxes, for programs that follow a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headwater import INTEGER, TEXT, TIME, Postgres, StreamView, Topic, events

from .domain.order import Placed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Product(NamedTuple):
    """A product of the shop, with the rate of its tax in hundredths of a percent."""

    sku: str
    product: str
    category: str
    basis_points: int


PRODUCTS: Final = (
    Product("tea", "green tea", "drinks", 725),
    Product("saffron", "saffron, 1 g", "spices", 900),
)
LARGE_CENTS: Final = 1_000


def with_products(placed: DataFrame) -> DataFrame:
    """A row per line of a large order; the product of an unknown `sku` is null."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    products = placed.sparkSession.createDataFrame(PRODUCTS, ["sku", "product", "category", "basis_points"])
    listed = f.from_json("lines", "array<struct<sku: string, quantity: bigint, unit_cents: bigint>>")
    return (
        placed.where(f.col("total_cents") >= LARGE_CENTS)
        .select("stream", "customer", f.col("time").alias("placed_at"), f.posexplode(listed).alias("line", "ordered"))
        .select("stream", "line", "customer", "placed_at", "ordered.*")
        .withColumn("cents", f.expr("quantity * unit_cents"))
        .join(products, "sku", "left")
        .withColumn("tax_cents", f.expr("(cents * basis_points + 5000) div 10000"))
        .drop("unit_cents", "basis_points")
    )


large_order_lines = StreamView(
    name="large_order_lines",
    key=("stream", "line"),
    columns={
        "stream": TEXT,
        "line": INTEGER,
        "customer": TEXT,
        "placed_at": TIME,
        "sku": TEXT,
        "product": TEXT,
        "category": TEXT,
        "quantity": INTEGER,
        "cents": INTEGER,
        "tax_cents": INTEGER,
    },
    sources={"placed": events(Placed, late_after="1h")},
    realtime=True,
    stores=(Postgres(indexes=(("category",),)), Topic()),
    query=with_products,
    doc="each line of a large order with its product and tax, milliseconds after the order was placed",
)
