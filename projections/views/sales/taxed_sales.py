"""Each sale with the customer's tier and the country's tax rate as they were when it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands.aggregates.sales.membership import TierChanged
from commands.aggregates.sales.sale import SaleMade
from commands.aggregates.sales.tax_rate import TaxRateChanged
from projections import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, events, in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = {
    "sale_id": TEXT,
    "customer": TEXT,
    "country": TEXT,
    "category": TEXT,
    "cents": INTEGER,
    "made_at": TIME,
    "tier": TEXT,
    "basis_points": INTEGER,
    "tax_cents": INTEGER,
}


def as_it_was(sales: DataFrame, tiers: DataFrame, rates: DataFrame) -> DataFrame:
    """A row per sale; tier and rate are null if there was none yet."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    changed = rates.select(
        f.col("country").alias("taxed"),
        f.col("time").alias("taxed_from"),
        f.struct(f.unix_micros("time").alias("at"), "sequence", "basis_points").alias("rate"),
    )
    sold = ["id", "time", "sale_id", "customer", "country", "category", "cents"]
    taxed = (
        sales.join(changed, f.expr("country = taxed and taxed_from <= time"), "left_outer")
        .select(*sold, "rate")  # of times, only that of the sale
        .groupBy(*sold)
        .agg(f.max("rate").alias("rate"))
        .select(*sold, "rate.basis_points")
    )
    changes = tiers.select("id", "time", "customer", "tier", "sequence")
    rows = taxed.unionByName(changes, allowMissingColumns=True)
    return in_order(rows, key="customer", step=with_tier, columns=COLUMNS, forget_after="36500d")


def with_tier(known: Any, row: Any) -> tuple[Any, list[dict[str, Any]]]:
    """known: `[time, sequence, tier]` of the customer's last change; the time is in seconds since 1970."""
    if row.tier is not None:
        # ids with the same time are in the order of texts, in which 10 is before 9
        return max(known or [0, 0, ""], [row.time.timestamp(), row.sequence, row.tier]), []
    rate = row.basis_points
    sale = {name: getattr(row, name) for name in ("sale_id", "customer", "country", "category", "cents")}
    tax_cents = None if rate is None else (row.cents * rate + 5_000) // 10_000
    was = {"made_at": row.time, "tier": known and known[2], "basis_points": rate, "tax_cents": tax_cents}
    return known, [{**sale, **was}]


taxed_sales = StreamView(
    name="taxed_sales",
    key="sale_id",
    columns=COLUMNS,
    sources={
        "sales": events(SaleMade, late_after="1m"),
        "tiers": events(TierChanged, late_after="1m"),
        "rates": events(TaxRateChanged, late_after="1m"),
    },
    late="keep",
    final=True,
    every="10s",
    stores=(Postgres(indexes=(("customer", "-made_at"),)), Cache()),
    query=as_it_was,
    doc="each sale with the tier of its customer and the tax rate of its country when it was made",
)
