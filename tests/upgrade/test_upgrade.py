"""A team upgrades: both versions run side by side on data that the earlier one has written, and it can go back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compose.settings import StackSettings
from tests.support.waiting import eventually
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
TEA = {"sku": "tea", "quantity": 2, "unit_cents": 600}


@pytest.fixture(params=RELEASES, ids=lambda each: each.name.partition(".tar")[0])
def versions(request: pytest.FixtureRequest, stack: StackSettings, tmp_path: Path) -> Iterator[list[Version]]:
    shared = {
        "HEADWATER_ENVIRONMENT": f"upgraded_{uuid.uuid4().hex[:8]}",
        "HEADWATER_MODULES": "listings,orders",
        "HEADWATER_PARTITIONS": "2",
        "HEADWATER_PATCH_PARTITIONS": "2",
        "HEADWATER_ANSWER_TIMEOUT_S": "60",
    }
    with both(request.param, stack, tmp_path, shared) as made:
        yield made


def test_a_release_is_kept_to_be_tried_with() -> None:
    assert RELEASES


def test_a_team_upgrades_without_an_interruption_and_goes_back(versions: list[Version], tmp_path: Path) -> None:
    old, new = versions
    old.start("commands", "projections")
    old.start_listening()  # it becomes ready with the first event, or else after a minute
    listed(old, 100_000)
    place(old, "O1")
    old.wait("api")

    # handlers and APIs of both versions share the work
    new.start("commands", "api")
    priced(old, new, 110_000)
    priced(new, old, 120_000)
    place(new, "O2")
    generations = seen(old, 120_000)

    # the new version goes on where the old one ends, with its places, its states and its views
    old.stop("commands", "projections")
    new.start("projections", state=old.state)
    priced(new, old, 130_000)
    pay(new, "O1")
    assert seen(new, 130_000) == generations, "a view was built anew"
    seen(old, 130_000)
    new.replay("rebuild", "listings", state=old.state)

    # and back
    new.stop()
    old.start("commands", "projections")
    priced(old, old, 140_000)
    pay(old, "O2")
    seen(old, 140_000)
    assert differences(old, old.state) == dict.fromkeys(VIEWS, 0)


VIEWS = ("city_market", "hourly_views", "large_order_lines", "listing_card", "listing_search", "listings", "streams")


def listed(version: Version, price: int) -> None:
    """Houses are listed, and looked at."""
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
    version.send("order.place", f"place {order}", order_id=order, customer="Ada", lines=[TEA])


def pay(version: Version, order: str) -> None:
    """An order is paid that another version has placed: its process goes on, and reserves the stock."""
    version.send("order.pay", f"pay {order}", order_id=order, amount_cents=1_200)
    types = ["order.placed", "order.paid", "order.confirmed"]
    eventually(
        lambda: [each["type"] for each in version.get(f"/streams/order/{order}")["events"]] == types,
        f"order {order} is confirmed",
    )


def seen(version: Version, price: int) -> dict[str, Any]:
    """The generations of the views, once every row has this price."""
    for view in ("listings", "listing_search", "listing_card"):
        for name in HOUSES:
            eventually(
                lambda view=view, name=name: version.get(f"/views/{view}/{name}")["price"] == price,  # type: ignore[misc]
                f"{name} in {view} at {price}",
            )
    return {each["name"]: each["generation"] for each in version.get("/views")["views"]}


def differences(version: Version, state: Path) -> dict[str, int]:
    """How many rows of each view differ from a rebuild."""
    verified = json.loads(version.replay("verify", "--all", "--json", state=state))["views"]
    return {each["view"]: sum(store["differences"] for store in each["stores"]) for each in verified}
