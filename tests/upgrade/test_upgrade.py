"""A team upgrades: both versions run side by side on data that the earlier one has written, and it can go back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from compose.settings import StackSettings
from tests.support.waiting import eventually
from tests.upgrade.captured_shop import ADA, SOURCE, Shop, captured_shop
from tests.upgrade.two_versions import Version, both

pytestmark = [pytest.mark.xdist_group("an earlier release"), pytest.mark.timeout(1800)]

RELEASES = sorted((Path(__file__).parent / "releases").glob("*.tar.xz"))
HOUSE = {
    "city": "DAVIS",
    "zip": "95616",
    "property_type": "Residential",
    "beds": 3,
    "baths": 2.5,
    "square_feet": 1_500,
    "latitude": 38.5,
    "longitude": -121.7,
}
HOUSES = [f"L{number}" for number in range(6)]
"""Of both partitions."""
LINE = {"sku": "tea", "quantity": 2, "unit_cents": 600}


@pytest.fixture
def shop(stack: StackSettings) -> Iterator[Shop]:
    with captured_shop(stack, f"upgraded_{uuid.uuid4().hex[:8]}") as made:
        yield made


@pytest.fixture(params=RELEASES, ids=lambda each: each.name.partition(".tar")[0])
def versions(
    request: pytest.FixtureRequest, stack: StackSettings, shop: Shop, tmp_path: Path
) -> Iterator[list[Version]]:
    shared = {
        **shop.variables,
        "HEADWATER_ENVIRONMENT": shop.name,
        "HEADWATER_MODULES": "listings,orders,customers",
        "HEADWATER_PARTITIONS": "2",
        "HEADWATER_PATCH_PARTITIONS": "2",
        "HEADWATER_ANSWER_TIMEOUT_S": "240",
    }
    with both(request.param, stack, tmp_path, shared) as made:
        yield made


def test_a_release_is_kept_to_be_tried_with() -> None:
    assert RELEASES


@pytest.mark.complete
def test_a_team_upgrades_without_an_interruption_and_goes_back(
    versions: list[Version], shop: Shop, tmp_path: Path
) -> None:
    old, new = versions
    shop.fill()
    old.start("commands", "projections")
    old.start_listening()  # it becomes ready with the first event, or else after a minute
    listed(old, 100_000)
    place(old, "O1")
    old.wait("api")
    shop.wait()
    old.apply_sources()
    eventually(lambda: imported(old) == [""], "the customer is captured")

    # handlers and APIs of both versions share the work
    new.start("commands", "api")
    assert new.apply_sources() == AS_DECLARED
    priced(old, new, 110_000)
    priced(new, old, 120_000)
    place(new, "O2")
    viewed(old, new, 1)
    viewed(new, old, 2)
    named(shop, new, 1)
    named(shop, old, 2)
    generations = seen(new, 120_000, 2)

    # the new version goes on where the old one ends, with its places, its states and its views
    old.stop("commands", "projections")
    new.start("projections", state=old.state)
    priced(new, old, 130_000)
    pay(new, "O1")
    viewed(new, old, 3)
    named(shop, new, 3)
    assert seen(new, 130_000, 3) == generations, "a view was built anew"
    seen(old, 130_000, 3)
    new.replay("rebuild", "listings", "customers", state=old.state)

    # and back
    new.stop()
    assert old.apply_sources() == AS_DECLARED
    old.start("commands", "projections")
    priced(old, old, 140_000)
    pay(old, "O2")
    viewed(old, old, 4)
    named(shop, old, 4)
    seen(old, 140_000, 4)
    compared = verified(old, old.state)
    assert {view: differ for view, (_, differ) in compared.items()} == dict.fromkeys(VIEWS, 0)
    assert all(rows for rows, _ in compared.values()), "an empty view equals any other"


AS_DECLARED = f"{SOURCE}: as declared\n"
VIEWS = (
    *("city_market", "customers", "hourly_views", "large_order_lines", "listing_card", "listing_search", "listings"),
    "streams",
)
LOOKED_AT = datetime.now(UTC).replace(microsecond=0)


def listed(version: Version, price: int) -> None:
    """Houses are listed."""
    for name in HOUSES:
        version.send("listing.list_property", f"list {name}", listing_id=name, price=price, **HOUSE)


def priced(version: Version, other: Version, price: int) -> None:
    """All prices change once, although both versions are asked."""
    for name in HOUSES:
        words = ("listing.change_price", f"{name} at {price}")
        first = version.send(*words, listing_id=name, price=price)
        again = other.send(*words, listing_id=name, price=price)
        assert (again["stream"], again["version"]) == (first["stream"], first["version"])
        stream = version.get(f"/streams/listing/{name}", after=first["position"], wait_ms="30000")
        assert [each["data"]["price"] for each in stream["events"]][-1] == price
        assert [each["sequence"] for each in stream["events"]] == list(range(1, len(stream["events"]) + 1))


def place(version: Version, order: str) -> None:
    """There is tea for an order, which is not paid yet."""
    version.send("stock.receive", f"tea for {order}", sku="tea", quantity=2)
    version.send("order.place", f"place {order}", order_id=order, customer="Ada", lines=[LINE])


def pay(version: Version, order: str) -> None:
    """An order is paid that another version has placed: its process goes on, and reserves the stock."""
    version.send("order.pay", f"pay {order}", order_id=order, amount_cents=1_200)
    types = ["order.placed", "order.paid", "order.confirmed"]
    eventually(
        lambda: [each["type"] for each in version.get(f"/streams/order/{order}")["events"]] == types,
        f"order {order} is confirmed",
    )


def viewed(version: Version, other: Version, number: int) -> None:
    """Each house is looked at once more, although both versions store the report."""
    for each, name in product((version, other), HOUSES):
        report = {"id": f"{name}-{number}", "source": "site", "time": LOOKED_AT.isoformat()}
        each.report("listing_viewed", **report, data={"listing_id": name})


def named(shop: Shop, version: Version, number: int) -> None:
    """The customer has another name, which becomes one command of a process."""
    shop.name_customer(f"name {number}")
    names = ["", *(f"name {each + 1}" for each in range(number))]
    eventually(lambda: imported(version) == names, f"the customer has had the names {names}")


def imported(version: Version) -> list[str]:
    """The names that the customer has had: of each row that was captured, a process makes an event."""
    answer = version.ask(f"/streams/contact/{ADA}")
    return [each["data"]["name"] for each in answer.json()["events"]] if answer and answer.is_success else []


def seen(version: Version, price: int, number: int) -> dict[str, Any]:
    """The generations of the views, once each row has what came last."""
    for view, name in product(("listings", "listing_search", "listing_card"), HOUSES):
        version.wait_row(f"{view}/{name}", price=price)
    for name in HOUSES:
        version.wait_row(f"hourly_views?listing_id={name}", views=number)
    version.wait_row(f"customers/{ADA}", name=f"name {number}")
    return {each["name"]: each["generation"] for each in version.get("/views")["views"]}


def verified(version: Version, state: Path) -> dict[str, tuple[int, int]]:
    """How many rows of each view a rebuild has, and how many of them differ."""
    views = json.loads(version.replay("verify", "--all", "--json", state=state))["views"]
    return {
        each["view"]: (
            sum(store["rows"] for store in each["stores"]),
            sum(store["differences"] for store in each["stores"]),
        )
        for each in views
    }
