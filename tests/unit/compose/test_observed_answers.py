"""What the samples of observations expect, at the edges of their rules, and what their demo sends."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.compose.samples.observed import Report
from headwater.eventlog.programs.modules import shipped_domains
from tests.samples.buses import legs, positions
from tests.samples.checked import Happened, checked_sample
from tests.samples.checkouts import suspect
from tests.samples.observed import SENT_WITHIN, CheckedObserved
from tests.samples.payments import EVIDENCE, distant, rapid, records, wrongly_blocked
from tests.samples.sensors import SENSOR_DOMAIN, averages, silences
from tests.samples.shop_floor import daily, totals
from tests.samples.ski_lifts import busiest_lifts, rides_per_lift
from tests.samples.stored_rows import is_equal
from tests.samples.web import click_through, views_per_page, visits

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
OBSERVED = [name for name in shipped_domains() if isinstance(checked_sample(name), CheckedObserved)]
VIENNA: dict[str, Any] = {"latitude": 48.21, "longitude": 16.37}
GRAZ: dict[str, Any] = {"latitude": 47.07, "longitude": 15.44}


def at(seconds: float, kind: str, late_s: float = 0, source: str = "s", **data: Any) -> Report:
    time = START + timedelta(seconds=seconds)
    return Report(kind, f"{seconds}", source, time, time + timedelta(seconds=late_s), data)


def read(seconds: float, value: float, late_s: float = 0) -> Report:
    return at(seconds, "sensor_read", late_s, sensor="roof", value=value)


def test_a_sensor_is_silent_after_more_than_30_seconds() -> None:
    found = silences([read(0, 1.0), read(30, 2.0), read(60.001, 3.0), read(61, 9.0, late_s=61)])
    assert [(row["silent_since"].second, row["active_since"].second, row["last_value"]) for row in found.values()] == [
        (30, 0, 2.0),
        (0, 0, 3.0),
    ]
    assert next(iter(found)) == "roof/2026-03-01T12:00:30.000Z"


def test_averages_of_five_seconds_take_late_readings_up_to_an_hour() -> None:
    reports = [read(0, 0.1), read(4.999, 0.2), read(4.999, 0.2, late_s=3), read(2, 0.3, 3_600), read(3, 9.0, 3_600.001)]
    (row,) = averages([*reports]).values()
    assert (row["readings"], row["average"], row["minimum"], row["maximum"]) == (3, 0.2, 0.1, 0.3)


def test_a_ride_is_in_two_windows_and_a_tie_goes_to_the_first_name() -> None:
    rides = [at(0, "lift_ridden", lift="b"), at(299, "lift_ridden", lift="a"), at(300, "lift_ridden", lift="b")]
    found = {key: (row["lift"], row["rides"], row["all_rides"]) for key, row in busiest_lifts(rides).items()}
    assert found == {
        "2026-03-01T11:55:00.000Z": ("a", 1, 2),
        "2026-03-01T12:00:00.000Z": ("b", 2, 3),
        "2026-03-01T12:05:00.000Z": ("b", 1, 1),
    }
    assert rides_per_lift(rides)["a/2026-03-01T12:00:00.000Z"]["rides"] == 1


def opened(seconds: float, page: str, source: str = "browser") -> Report:
    return at(seconds, "page_opened", source=source, view_id=f"{seconds}", visitor="v", page=page)


def test_a_visit_ends_with_a_pause_of_more_than_30_minutes() -> None:
    found = visits([opened(0, "/"), opened(1_800, "/tea"), opened(1_800, "/tea", "server"), opened(3_600.001, "/")])
    assert [(row["pages"], row["seconds"], row["exit_page"]) for row in found.values()] == [
        (2, 1_800.0, "/tea"),
        (1, 0.0, "/"),
    ]
    assert [row["views"] for row in views_per_page([opened(0, "/"), opened(0, "/", "server")]).values()] == [1]


def test_a_click_counts_from_the_search_until_an_hour_later() -> None:
    def rate(*clicks_s: float) -> float:
        clicks = [at(60 + each, "result_clicked", search_id="1", result=1) for each in clicks_s]
        searches = [at(60, "searched", search_id="1", query="tea"), at(61, "searched", search_id="2", query="tea")]
        (row,) = click_through([*searches, *clicks]).values()
        rate: float = row["rate"]
        return rate

    assert [rate(), rate(-0.001), rate(0), rate(3_600, 2), rate(3_600.001)] == [0, 0, 0.5, 0.5, 0]


def charged(seconds: float, late_s: float = 0, cents: int = 5) -> Report:
    return at(seconds, "card_charged", late_s, card="c", cents=cents, **VIENNA)


def test_payments_are_rapid_at_most_10_seconds_apart() -> None:
    found = rapid([charged(0), charged(10), charged(20.001), charged(40), charged(45, late_s=31)])
    assert [(row["payments"], row["cents"], row["ids"]) for row in found.values()] == [
        (2, 10, ["card_charged/s/0", "card_charged/s/10"])
    ]


def test_a_card_is_blocked_once_for_one_of_its_series_when_that_is_final() -> None:
    reports = [charged(0), charged(10), charged(40), charged(45)]
    first, second = ([f"card_charged/s/{each}" for each in pair] for pair in ((0, 10), (40, 45)))
    final = START + timedelta(seconds=10 + 10 + 150) + SENT_WITHIN

    def blocked(ids: list[str], card: str = "c", kind: str = "card.blocked") -> Happened:
        return Happened(f"card/{card}", 1, kind, {"card": card, "evidence": ids})

    def wrong(*events: Happened, now: datetime = final) -> list[str]:
        return [text.partition(",")[0] for text in wrongly_blocked(reports, events, now)]

    assert wrong(blocked(first)) == wrong(blocked(second)) == wrong(now=final - timedelta(milliseconds=1)) == []
    assert wrong() == ["card/c is open"]
    assert wrong(blocked(first), blocked(second)) == ["card/c has 2 events"]
    assert len(wrong(blocked(first), blocked(first, card="d"))) == 1
    assert len(wrong(blocked(first[:1]))) == len(wrong(blocked(first, kind="card.unblocked"))) == 1
    many = [charged(number) for number in range(EVIDENCE + 1)]
    (row,) = rapid(many).values()
    assert list(wrongly_blocked(many, [blocked(row["ids"][:-1])], final)) == []


def test_a_payment_is_a_record_if_it_is_above_each_earlier_one() -> None:
    paid = [charged(5, cents=9), charged(0, cents=4), charged(6, cents=9), charged(7, late_s=31), charged(9, cents=10)]
    assert {name: (row["previous_cents"], row["previous_id"]) for name, row in records(paid).items()} == {
        "card_charged/s/5": (4, "card_charged/s/0"),
        "card_charged/s/9": (9, "card_charged/s/5"),
    }


def test_a_checkout_is_suspect_after_three_refused_ones_on_a_new_device() -> None:
    def tried(*seconds: float, confirmed: float = -1, paid: float) -> list[list[str]]:
        def one(at_s: float, kind: str) -> Report:
            return at(at_s, kind, account="a", device="d")

        reports = [one(0, "device_added"), *(one(each, "checkout_declined") for each in seconds)]
        reports += [one(confirmed, "device_confirmed"), one(paid, "checkout_paid"), one(paid + 1, "checkout_paid")]
        return [row["declined"] for row in suspect(reports).values()]

    assert tried(1, 2, 3, 4, paid=599) == [["checkout_declined/s/1", "checkout_declined/s/2", "checkout_declined/s/3"]]
    assert [tried(1, 2, 3, paid=600.001), tried(1, 2, paid=5), tried(1, 2, 4, confirmed=3, paid=5)] == [[], [], []]
    assert tried(1, 2, 3, confirmed=6, paid=5) != []


def test_a_bus_is_where_it_was_last_and_as_late_as_at_its_last_stop() -> None:
    def place(seconds: float, latitude: float, late_s: float = 0) -> Report:
        return at(seconds, "bus_located", late_s, vehicle="b", latitude=latitude, longitude=16.0)

    def stop(seconds: float, name: str) -> Report:
        return at(seconds, "bus_stopped", vehicle="b", line="7", stop=name, departed_s=200)

    stops = [stop(5, "Market"), stop(4, "Depot")]
    reports = [place(20, 48.01), place(0, 48.0), place(30, 50.0, 600.001), *stops]
    (row,) = positions(reports).values()
    assert (row["place"], row["stop"], row["delay_s"]) == ({"lat": 48.01, "lon": 16.0}, "Market", 20)
    assert positions([stop(5, "Lake")])["b"]["delay_s"] is None
    assert [(leg["metres"], leg["kmh"]) for leg in legs(reports).values()] == [(1_112, 200.2)]
    assert legs([place(0, 48.0), place(600.001, 48.1)]) == {}
    assert len(legs([place(0, 48.0), place(600, 48.1)])) == 1


def test_sales_are_of_each_product_and_day() -> None:
    def sold(seconds: float, late_s: float = 0) -> Report:
        return at(seconds, "item_sold", late_s, product="tea", pieces=2, cents=900)

    found = [sold(0), sold(0), sold(1, 86_400), sold(2, 86_400.001), sold(43_199.999), sold(43_200)]
    assert [(row["pieces"], row["cents"]) for row in totals(found).values()] == [(8, 3_600)]
    assert [row["pieces"] for row in daily(found).values()] == [6, 2]


def test_a_payment_is_distant_from_the_phone_s_place_that_is_nearest_in_time() -> None:
    def seen(seconds: float, place: dict[str, Any]) -> Report:
        return at(seconds, "phone_located", card="c", **place)

    assert distant([charged(100), seen(160.001, GRAZ)]) == {}
    assert [row["kilometres"] for row in distant([charged(100), seen(160, GRAZ)]).values()] == [145]
    assert distant([charged(100), seen(90, VIENNA), seen(111, GRAZ)]) == {}
    assert [row["phone_id"] for row in distant([charged(100), seen(90, VIENNA), seen(109, GRAZ)]).values()] == [
        "phone_located/s/109"
    ]


def test_a_final_row_may_come_a_moment_after_it_is_final() -> None:
    checked = SENSOR_DOMAIN.checked[1]
    reports, final = [read(0, 1.0)], START + timedelta(seconds=210)
    (key,) = silences(reports)
    assert checked.expected(reports, {}, final) == {}
    assert set(checked.expected(reports, {key: {}}, final)) == {key}
    assert set(checked.expected(reports, {}, final + SENT_WITHIN)) == {key}


@pytest.mark.parametrize("domain", OBSERVED)
def test_what_the_demo_sends_is_accepted_and_some_of_it_is_late(domain: str) -> None:
    sample, registry = checked_sample(domain), ObservationRegistry.load([domain])
    requests = [request for requests in sample.rounds() for request in requests]
    assert len(requests) == sample.number
    assert {request.type for request in requests} == set(registry.types)
    times: dict[tuple[str, str], set[datetime]] = defaultdict(set)
    for request in requests:
        found = registry.read(request.type, orjson.dumps(request.body))
        assert found.time is not None
        times[request.type, found.id].add(found.time)
    assert {len(time) for time in times.values()} == {1}, "what is reported twice has one time"
    now = datetime.now(UTC)
    assert sum(now - time > timedelta(minutes=30) for each in times.values() for time in each) > 0
    assert set(sample.rows) <= set(sample.views)


def test_the_samples_of_observations() -> None:
    assert OBSERVED == ["buses", "checkouts", "payments", "sensors", "shop_floor", "ski_lifts", "web"]


@pytest.mark.parametrize(
    ("stored", "same"),
    [("(16.37,48.2)", True), ({"lat": 48.2, "lon": 16.37}, True), ("(48.2,16.37)", False), (None, False)],
)
def test_a_place_is_the_same_in_each_store(stored: Any, same: bool) -> None:
    assert is_equal({"lat": 48.2, "lon": 16.37}, stored) is same
