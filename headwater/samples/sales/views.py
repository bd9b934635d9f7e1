"""Sales with the tier and the tax rate of their time, and their sums per category and minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater import INTEGER, TEXT, TIME, Cache, Postgres, StreamView, TableView, add, average, count, events, in_order

from .domain.membership import TierChanged
from .domain.sale import SaleMade
from .domain.tax_rate import TaxRateChanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


category_sales = TableView(
    name="category_sales",
    key="category",
    columns={
        "sales": count(SaleMade),
        "cents": add({SaleMade: "cents"}),
        "average_cents": average({SaleMade: "cents"}),
    },
    stores=(Postgres(indexes=(("-cents",),)), Cache()),
    doc="the number, the sum and the average of the sales of each category",
)


def intervals(changes: DataFrame) -> DataFrame:
    """A row per tier that a customer was in; the present one has no end."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        changes.groupBy("customer")
        .agg(f.array_sort(f.collect_list(f.struct("time", "sequence", "tier"))).alias("history"))
        .select("customer", "history", f.posexplode("history").alias("number", "change"))
        .select(
            "customer",
            "change.tier",
            f.col("change.time").alias("valid_from"),
            f.expr("get(history, number + 1).time").alias("valid_to"),
        )
        .where("valid_to is null or valid_to > valid_from")
    )


membership_tiers = StreamView(
    name="membership_tiers",
    key=("customer", "valid_from"),
    columns={"customer": TEXT, "tier": TEXT, "valid_from": TIME, "valid_to": TIME},
    sources={"changes": events(TierChanged, late_after="1m")},
    late="amend",
    keep_state="30d",
    stores=(Postgres(indexes=(("tier", "valid_to"),)), Cache()),
    query=intervals,
    doc="the tiers of each customer, with the times from which and until which they applied",
)


def by_minute(sales: DataFrame) -> DataFrame:
    """A row per customer and minute."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        sales.groupBy("customer", f.window("time", "1 minute").alias("minutes"))
        .agg(f.count("*").alias("sales"), f.sum("cents").alias("cents"))
        .select("customer", f.col("minutes.start").alias("minute"), "sales", "cents")
    )


sales_per_minute = StreamView(
    name="sales_per_minute",
    key=("customer", "minute"),
    columns={"customer": TEXT, "minute": TIME, "sales": INTEGER, "cents": INTEGER},
    sources={"sales": events(SaleMade, late_after="5m")},
    late="keep",
    stores=(Postgres(indexes=(("minute", "sales"),)), Cache()),
    query=by_minute,
    doc="the sales to each customer, per minute",
)

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
