"""The test kit of stream views: what a user's test gives, and the rows that Spark computes from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater import INTEGER, TEXT, TIME, Observation, Postgres, StreamView, events, observations
from headwater.commands.errors import UnreadableEvent
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.stream.checks import Query
from headwater.samples.listings.domain import ListingViewed, PriceChanged
from headwater.samples.listings.views import hourly_views
from headwater.testing import at, check_any_order, heartbeat, late_rows_of, recorded, rows_of
from tests.support.pages import blocks, read_page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.jvm
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


class Beaten(Observation, type="beaten"):
    """A heart has beaten."""

    heart: str
    strength: int


def beats_of_minutes(beats: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        beats.groupBy("heart", f.window("time", "1 minute").alias("minutes"))
        .agg(f.sum("strength").alias("beats"))
        .select("heart", f.col("minutes.start").alias("minute"), "beats")
    )


PULSE = StreamView(
    name="pulse",
    key=("heart", "minute"),
    columns={"heart": TEXT, "minute": TIME, "beats": INTEGER},
    sources={"beats": observations(Beaten, late_after="5m")},
    query=beats_of_minutes,
    late="keep",
    final=True,
    stores=(Postgres(),),
)


def after(**time: float) -> datetime:
    return NOON + timedelta(**time)


def pulse(minute: int, beats: int) -> dict[str, dict[str, object]]:
    time = f"2025-06-01T12:{minute:02}:00.000Z"
    return {f"a/{time}": {"key": f"a/{time}", "heart": "a", "minute": time, "beats": beats}}


def test_a_window_is_closed_by_what_comes_later_or_by_a_heartbeat() -> None:
    beats = [at(after(seconds=seconds), Beaten(heart="a", strength=1)) for seconds in (0, 59, 60)]
    assert rows_of(PULSE, *beats) == {}
    assert rows_of(PULSE, *beats, heartbeat(after(minutes=8.5))) == pulse(0, 2)
    assert rows_of(PULSE, *beats, heartbeat(after(hours=1))) == pulse(0, 2) | pulse(1, 1)


def test_who_reports_too_late_is_in_the_view_of_what_is_late() -> None:
    """A record is accepted at the latest time before it."""
    beat, later, closed = (
        at(NOON, Beaten(heart="a", strength=1)),
        heartbeat(after(minutes=6)),
        heartbeat(after(hours=1)),
    )
    assert rows_of(PULSE, beat, later, beat, closed) == pulse(0, 1)
    (late,) = late_rows_of(PULSE, beat, later, beat, closed).values()
    assert late["late_s"] == 360.0
    with pytest.raises(ValueError, match='"hourly_views" keeps no late records: declare it with late="keep"'):
        late_rows_of(hourly_views)


@pytest.mark.complete
def test_a_view_of_a_sample() -> None:
    seen = [at(after(minutes=minutes), ListingViewed(listing_id="L")) for minutes in (0, 30, 90)]
    found = rows_of(hourly_views, *seen)
    assert [(row["listing_id"], row["hour"], row["views"]) for row in found.values()] == [
        ("L", "2025-06-01T12:00:00.000Z", 2),
        ("L", "2025-06-01T13:00:00.000Z", 1),
    ]
    check_any_order(hourly_views, *seen, tries=2)


def highest_of_listings(changed: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return changed.groupBy(f.split("stream", "/")[1].alias("listing")).agg(f.max("price").alias("price"))


def prices(query: Query) -> StreamView:
    return StreamView(
        name="prices",
        key="listing",
        columns={"listing": TEXT, "price": INTEGER},
        sources={"changed": events(PriceChanged, late_after="1h")},
        query=query,
        stores=(Postgres(),),
    )


def changed(price: int) -> PriceChanged:
    return PriceChanged(listing_id="L", price=price, city="Galt", previous_price=1)


@pytest.mark.complete
def test_events_of_any_version_are_read_and_others_are_ignored() -> None:
    highest = prices(highest_of_listings)
    viewed = ListingViewed(listing_id="L")
    assert rows_of(highest, viewed, heartbeat(NOON)) == {}
    stored = changed(9).model_dump()
    older = recorded(PriceChanged, PriceChanged.version, stored)
    assert rows_of(highest, at(NOON, changed(7)), viewed, older) == {"L": {"listing": "L", "price": 9}}
    with pytest.raises(UnreadableEvent, match="written by a newer version of the code"):
        rows_of(highest, recorded(PriceChanged, 99, stored))


def test_what_spark_cannot_read_is_an_error() -> None:
    with pytest.raises(ValueError, match='"pulse" cannot read 1 of the records: they would be left out'):
        rows_of(PULSE, Beaten(heart="a", strength=2**63), Beaten(heart="a", strength=1))


@pytest.mark.parametrize("made", [heartbeat, lambda time: at(time, Beaten(heart="a", strength=1))])
def test_a_time_needs_a_zone(made: Callable[[datetime], object]) -> None:
    with pytest.raises(ValueError, match="has no zone"):
        made(datetime(2025, 6, 1))


def no_price(changed: DataFrame) -> DataFrame:
    return changed.selectExpr("stream as listing", "cast(raise_error(concat('no price ', price)) as bigint) as price")


def test_a_query_that_fails_says_why() -> None:
    with pytest.raises(StreamQueryFailed, match=r'stream view "prices" failed: .*no price 7'):
        rows_of(prices(no_price), changed(7))


def sum_of_batch(changed: DataFrame) -> DataFrame:
    """As a mistaken user would write it: a task sees the records of one batch only."""

    def sums(parts: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        yield pd.DataFrame({"listing": ["L"], "price": [sum(int(part["price"].sum()) for part in parts)]})

    return changed.select("price").mapInPandas(sums, "listing string, price bigint")


@pytest.mark.complete
def test_rows_that_depend_on_batches_are_found() -> None:
    given = [changed(price) for price in range(1, 8)]
    with pytest.raises(AssertionError) as raised:
        check_any_order(prices(sum_of_batch), *given)
    said = str(raised.value)
    assert '"prices" has other rows if its records come in batches of ' in said
    assert "HEADWATER_SEED=" in said and "'price': 28" in said
    check_any_order(prices(highest_of_listings), *given)


@pytest.mark.complete
def test_the_samples_of_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks("python", read_page("testing.md"))
    sample = next(each for each in shown if "late_rows_of" in each)
    given = "from datetime import UTC, datetime\n\nfrom headwater.testing import at, check_any_order, rows_of\n"
    noon = next(line for each in shown for line in each.splitlines() if line.startswith("NOON = "))
    (tmp_path / "visits_of_a_page.py").write_text(f"{given}\n{noon}\n{sample}")
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("visits_of_a_page")
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
