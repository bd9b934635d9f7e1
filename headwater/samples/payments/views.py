"""Payments that look like those of thieves: far from the holder's phone, in quick succession, and above all before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater import INTEGER, JSON, TEXT, TIME, Cache, Postgres, StreamView, Topic, in_order, observations

from .domain import CardCharged, PhoneLocated

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def far_from_phone(charges: DataFrame, phones: DataFrame) -> DataFrame:
    """A row per payment: where the phone was nearest to its time, within a minute, it was over 100 km away."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    # the two minutes around a payment are in two of these periods, so it meets only the places in these
    first = f.expr("unix_seconds(time - interval 1 minute) div 120")
    paid = charges.withColumn("period", f.explode(f.array(first, first + 1))).select(
        "id", "card", "period", "cents", f.col("time").alias("paid_at"), "latitude", "longitude"
    )
    seen = phones.select(
        f.col("id").alias("seen_id"),
        f.col("card").alias("seen_card"),
        f.expr("unix_seconds(time) div 120").alias("seen_period"),
        f.col("time").alias("seen_at"),
        f.struct("latitude", "longitude").alias("place"),
    )
    within_a_minute = f.expr(
        "card = seen_card and period = seen_period "
        "and seen_at >= paid_at - interval 1 minute and seen_at <= paid_at + interval 1 minute"
    )
    apart = f.abs(f.unix_millis("seen_at") - f.unix_millis("paid_at"))
    return (
        paid.join(seen, within_a_minute)
        .withColumn("sighting", f.struct(apart.alias("apart_ms"), "seen_id", "place"))
        .select("id", "card", "cents", "paid_at", "latitude", "longitude", "sighting")  # of times, only the payment's
        .groupBy("id", "card", "cents", "paid_at", "latitude", "longitude")
        .agg(f.min("sighting").alias("nearest"))
        .withColumn("kilometres", _kilometres("latitude", "longitude", "nearest.place").cast("bigint"))
        .where("kilometres > 100")
        .select("id", "card", "cents", "paid_at", "kilometres", f.col("nearest.seen_id").alias("phone_id"))
    )


def _kilometres(latitude: str, longitude: str, place: str) -> Column:
    """The distance of two places, by the haversine formula."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    here, there = f.radians(latitude), f.radians(f"{place}.latitude")
    east = f.radians(f"{place}.longitude") - f.radians(longitude)
    half = f.sin((there - here) / 2) ** 2 + f.cos(here) * f.cos(there) * f.sin(east / 2) ** 2
    return f.round(f.lit(2 * 6_371.0) * f.asin(f.sqrt(half)))


distant_payments = StreamView(
    name="distant_payments",
    key="id",
    columns={"id": TEXT, "card": TEXT, "cents": INTEGER, "paid_at": TIME, "kilometres": INTEGER, "phone_id": TEXT},
    sources={
        "charges": observations(CardCharged, late_after="30s"),
        "phones": observations(PhoneLocated, late_after="30s"),
    },
    final=True,
    version=2,
    stores=(Postgres(indexes=(("card", "paid_at"),)), Cache()),
    query=far_from_phone,
    doc="payments more than 100 km away from the phone of the card's holder",
)


def in_quick_succession(charges: DataFrame) -> DataFrame:
    """A row per series of payments that are at most 10 seconds apart, with the ids of its payments in their order."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only the process that runs the query needs Spark

    return (
        charges.dropDuplicates(["id", "time"])
        .groupBy("card", f.session_window("time", "10 seconds").alias("series"))
        .agg(
            f.min("time").alias("start"),
            f.max("time").alias("last"),
            f.count("*").alias("payments"),
            f.sum("cents").alias("cents"),
            f.array_sort(f.collect_list(f.struct("time", "id"))).alias("charged"),
        )
        .where("payments >= 2")
        .select("card", "start", "last", "payments", "cents", f.to_json("charged.id").alias("ids"))
    )


rapid_payments = StreamView(
    name="rapid_payments",
    key=("card", "start"),
    columns={"card": TEXT, "start": TIME, "last": TIME, "payments": INTEGER, "cents": INTEGER, "ids": JSON},
    sources={"charges": observations(CardCharged, late_after="30s")},
    final=True,
    version=2,
    stores=(Postgres(indexes=(("start",),)), Cache(), Topic()),
    query=in_quick_succession,
    doc="cards that were charged twice or more within 10 seconds",
)

COLUMNS = {"id": TEXT, "card": TEXT, "cents": INTEGER, "paid_at": TIME, "previous_cents": INTEGER, "previous_id": TEXT}


def above_before(charges: DataFrame) -> DataFrame:
    """A row per payment that is higher than each earlier one of its card; the first one has nothing to compare with."""
    return in_order(charges, key="card", step=compare, columns=COLUMNS, forget_after="90d")


def compare(highest: Any, charge: Any) -> tuple[Any, list[dict[str, Any]]]:
    """highest: `{"cents": …, "id": …}` of the card's highest payment so far."""
    if highest is not None and charge.cents <= highest["cents"]:
        return highest, []
    evidence = highest and {
        "id": charge.id,
        "card": charge.card,
        "cents": charge.cents,
        "paid_at": charge.time,
        "previous_cents": highest["cents"],
        "previous_id": highest["id"],
    }
    return {"cents": charge.cents, "id": charge.id}, [evidence] if evidence else []


record_payments = StreamView(
    name="record_payments",
    key="id",
    columns=COLUMNS,
    sources={"charges": observations(CardCharged, late_after="30s")},
    final=True,
    stores=(Postgres(indexes=(("card", "paid_at"),)), Cache()),
    query=above_before,
    doc="payments above the highest earlier one of the card, with that one",
)
