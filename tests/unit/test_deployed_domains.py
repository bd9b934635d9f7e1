"""A deployment has the domains that it names: what each registry finds for HEADWATER_MODULES."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError
from headwater.eventlog.errors import UnknownModule
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.registry import ViewRegistry
from tests.support.domains import SHIPPED
from tests.support.table_views import table_views

LISTINGS = {"listings", "listing_search", "listing_card", "city_market", "hourly_views"}
DOMAIN = """
from collections.abc import Sequence
from pydantic import BaseModel, ConfigDict
from headwater import Aggregate, Command, Event

class Placed(Event, type="order.placed"):
    order_id: str

class Place(Command, type="order.place"):
    order_id: str

class Order(BaseModel):
    model_config = ConfigDict(frozen=True)

def decide(command: Place, state: Order) -> Sequence[Event]:
    return [Placed(order_id=command.order_id)]

def evolve(state: Order, event: Placed) -> Order:
    return state

order = Aggregate(name="order", id_field="order_id", initial=Order(), decide=decide, evolve=evolve)
"""
VIEWS = """
from headwater import Postgres, TableView, count
from {events} import Placed

orders_placed = TableView(name="orders_placed", key="order_id", columns={{"n": count(Placed)}}, stores=(Postgres(),))
"""
EXPIRY = """
from pydantic import BaseModel, ConfigDict
from headwater import Process, Reaction
from headwater.samples.orders.domain import order

class Seen(BaseModel):
    model_config = ConfigDict(frozen=True)

def react(event: order.Placed, state: Seen) -> Reaction[Seen]:
    return Reaction(state, ended=True)

expiry = Process(name="expiry", key="order_id", initial=Seen(), starts=(order.Placed,), react=react)
"""


@pytest.fixture
def kiosk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's package `kiosk` with an aggregate `order` of its own and a view over that one's events."""
    folder = tmp_path / "kiosk"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "domain.py").write_text(DOMAIN)
    (folder / "views.py").write_text(VIEWS.format(events="kiosk.domain"))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "kiosk"]:
        del sys.modules[name]


def deployed(value: str) -> Names:
    """The names of the aggregates, observations, processes and views of a deployment with this HEADWATER_MODULES."""
    modules = LogSettings.from_environment({"HEADWATER_MODULES": value}).modules
    return (
        set(CommandRegistry.load(modules).aggregates),
        set(ObservationRegistry.load(modules).types),
        set(ProcessRegistry.load(modules).processes),
        set(ViewRegistry.load(modules).views),
    )


Names = tuple[set[str], ...]
"""Of aggregates, observations, processes and views."""
ONLY_LISTINGS: Names = ({"listing"}, {"listing_viewed"}, set(), {"streams", *LISTINGS})
ONLY_ORDERS: Names = ({"order", "refund", "stock"}, set(), {"order_fulfilment"}, {"streams", "large_order_lines"})
ONLY_SHOP: Names = (
    {"customer", "payment"},
    set(),
    {"customer_import"},
    {"streams", "customer_360", "product_search", "orders_by_status"},
)
ONLY_SENSORS: Names = (
    set(),
    {"sensor_read"},
    set(),
    {"streams", "sensor_averages", "sensor_silences", "sensor_silences_late"},
)
ONLY_SKI_LIFTS: Names = (set(), {"lift_ridden"}, set(), {"streams", "lift_rides", "busiest_lift"})
ONLY_WEB: Names = (
    set(),
    {"page_opened", "searched", "result_clicked"},
    set(),
    {"streams", "page_views", "visits", "click_through"},
)
ONLY_PAYMENTS: Names = (
    {"card"},
    {"card_charged", "phone_located"},
    {"card_blocking"},
    {"streams", "rapid_payments", "distant_payments", "record_payments"},
)
ONLY_CHECKOUTS: Names = (
    set(),
    {"device_added", "device_confirmed", "checkout_declined", "checkout_paid"},
    set(),
    {"streams", "suspect_checkouts"},
)
ONLY_SAVED_SEARCHES: Names = ({"saved_search"}, {"home_offered"}, set(), {"streams", "search_alerts"})
ONLY_BUSES: Names = (set(), {"bus_located", "bus_stopped"}, set(), {"streams", "bus_positions", "bus_legs"})
ONLY_SALES: Names = (
    {"sale", "membership", "tax_rate"},
    set(),
    set(),
    {
        "streams",
        "category_sales",
        "membership_tiers",
        "sales_per_minute",
        "sales_per_minute_late",
        "taxed_sales",
        "taxed_sales_late",
    },
)
ONLY_SHOP_FLOOR: Names = (set(), {"item_sold"}, set(), {"streams", "top_sellers", "daily_sellers"})
BOTH = tuple(one | other for one, other in zip(ONLY_LISTINGS, ONLY_ORDERS, strict=True))
OBSERVED = (
    ONLY_SAVED_SEARCHES,
    ONLY_BUSES,
    ONLY_SHOP_FLOOR,
    ONLY_CHECKOUTS,
    ONLY_PAYMENTS,
    ONLY_SENSORS,
    ONLY_SKI_LIFTS,
    ONLY_WEB,
)
ALL: Names = tuple(set[str]().union(*names) for names in zip(BOTH, ONLY_SHOP, ONLY_SALES, *OBSERVED, strict=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("listings", ONLY_LISTINGS),
        ("orders", ONLY_ORDERS),
        ("orders,listings", BOTH),
        ("shop", ONLY_SHOP),
        ("sales", ONLY_SALES),
        ("sensors", ONLY_SENSORS),
        ("ski_lifts", ONLY_SKI_LIFTS),
        ("saved_searches", ONLY_SAVED_SEARCHES),
        ("web", ONLY_WEB),
        ("payments", ONLY_PAYMENTS),
        ("checkouts", ONLY_CHECKOUTS),
        ("buses", ONLY_BUSES),
        ("shop_floor", ONLY_SHOP_FLOOR),
        (",".join(SHIPPED), ALL),
        ("headwater.samples.orders.domain,headwater.samples.orders.processes", (*ONLY_ORDERS[:3], {"streams"})),
        ("kiosk", ({"order"}, set(), set(), {"streams", "orders_placed"})),
        ("kiosk.domain", ({"order"}, set(), set(), {"streams"})),
        (
            "kiosk.views,listings,kiosk.domain",
            ({"order", "listing"}, {"listing_viewed"}, set(), {"streams", "orders_placed", *LISTINGS}),
        ),
    ],
)
@pytest.mark.usefixtures("kiosk")
def test_a_deployment_has_what_it_names_and_streams(value: str, expected: Names) -> None:
    assert deployed(value) == expected


@pytest.mark.usefixtures("kiosk")
def test_the_user_s_order_is_the_one_that_decides() -> None:
    domain = import_module("kiosk.domain")

    registry = CommandRegistry.load(["kiosk"])
    assert registry.command("order.place").command is domain.Place
    assert registry.command("order.place").aggregate is domain.order
    assert "order.pay" not in registry.commands
    assert table_views(["kiosk"])["orders_placed"].plan.events == {"order.placed": domain.Placed}


@pytest.mark.usefixtures("kiosk")
def test_two_aggregates_of_one_name_stay_an_error() -> None:
    said = r'"headwater\.samples\.orders\.domain\.order" and "kiosk\.domain" both declare an aggregate "order"'
    with pytest.raises(DeclarationError, match=said):
        CommandRegistry.load(["orders", "kiosk"])


@pytest.mark.parametrize("registry", [CommandRegistry, ObservationRegistry, ProcessRegistry, ViewRegistry])
def test_an_unknown_name_is_told_the_shipped_domains_by_each_registry(registry: type[CommandRegistry]) -> None:
    with pytest.raises(
        UnknownModule,
        match=r'"order".*HEADWATER_MODULES.*buses, checkouts, listings, orders, payments, sales, saved_searches',
    ):
        registry.load(["listings", "order"])


def test_a_view_of_a_domain_that_is_not_deployed_is_refused(kiosk: Path) -> None:
    (kiosk / "views.py").write_text(VIEWS.format(events="headwater.samples.orders.domain.order"))
    said = r'view "orders_placed": reads "order\.placed" of the sample "orders".*add "orders".*"kiosk\.views"'
    for modules in (["kiosk.views"], ["kiosk.views", "listings"], ["kiosk.views", "kiosk.domain"]):
        with pytest.raises(ViewDeclarationError, match=said):
            ViewRegistry.load(modules)
    for modules in (["kiosk.views", "orders"], ["kiosk.views", "headwater.samples.orders.domain.order"]):
        assert set(ViewRegistry.load(modules).views) - {"large_order_lines"} == {"streams", "orders_placed"}


def test_a_process_of_a_domain_that_is_not_deployed_is_refused(kiosk: Path) -> None:
    (kiosk / "expiry.py").write_text(EXPIRY)
    said = r'process "expiry" handles "order\.placed" of the sample "orders".*add "orders".*"kiosk\.expiry"'
    with pytest.raises(DeclarationError, match=said):
        ProcessRegistry.load(["kiosk.expiry"])
    assert set(ProcessRegistry.load(["orders", "kiosk.expiry"]).processes) == {"order_fulfilment", "expiry"}


SENDING = """
from functools import partial

from pydantic import BaseModel, ConfigDict

import kiosk.domain
from headwater import Process, Reaction
from kiosk.counting import Counted{imported}

class Seen(BaseModel):
    model_config = ConfigDict(frozen=True)
    number: int = 0

{helper}
def react(event: Counted, state: Seen) -> Reaction[Seen]:
    return Reaction(state, [{command}])

sending = Process(name="sending", key="count_id", initial=Seen(), starts=(Counted,), react=react)
"""
IMPORTED = "\nfrom kiosk import domain"
COUNTING = DOMAIN.replace("Placed", "Counted").replace("Place(", "Count(").replace("order", "count")
COUNTING = COUNTING.replace("command: Place", "command: Count")


@pytest.mark.parametrize(
    ("imported", "helper", "command"),
    [
        ("\nfrom kiosk.domain import Place", "", "Place(order_id=event.count_id)"),
        (IMPORTED, "", "domain.Place(order_id=event.count_id)"),
        ("", "", "kiosk.domain.Place(order_id=event.count_id)"),
        (IMPORTED, "", "*map(lambda each: domain.Place(order_id=each), ['1'])"),
        (IMPORTED, "def made(of):\n    return domain.Place(order_id=of)\n", "made(event.count_id)"),
        (IMPORTED, "MADE = {Counted: partial(domain.Place)}\n", "MADE[type(event)](order_id=event.count_id)"),
        (
            IMPORTED,
            "class Answers:\n    @staticmethod\n    def made(of):\n        return domain.Place(order_id=of)\n",
            "Answers.made(event.count_id)",
        ),
    ],
)
def test_a_process_whose_commands_no_aggregate_decides_is_refused(
    kiosk: Path, imported: str, helper: str, command: str
) -> None:
    (kiosk / "counting.py").write_text(COUNTING)
    (kiosk / "sending.py").write_text(SENDING.format(imported=imported, helper=helper, command=command))
    with pytest.raises(DeclarationError) as refused:
        ProcessRegistry.load(["kiosk.counting", "kiosk.sending"])
    line = (
        SENDING.format(imported=imported, helper=helper, command=command)
        .splitlines()
        .index('sending = Process(name="sending", key="count_id", initial=Seen(), starts=(Counted,), react=react)')
    )
    place = f"{kiosk}/domain.py:{len(DOMAIN.splitlines())}"
    assert str(refused.value) == (
        'process "sending" sends "order.place", which no aggregate of this deployment decides: add "kiosk.domain", '
        f'which has the aggregate "order" ({place}), to HEADWATER_MODULES (declared in "kiosk.sending", '
        f"{kiosk}/sending.py:{line + 1})"
    )
    assert [*ProcessRegistry.load(["kiosk"]).processes] == ["sending"]


def test_a_command_of_a_domain_that_is_not_deployed_is_refused(kiosk: Path) -> None:
    (kiosk / "counting.py").write_text(COUNTING)
    text = SENDING.format(
        imported="\nfrom headwater.samples.orders.domain.order import Expire", helper="", command="Expire(order_id='1')"
    )
    (kiosk / "sending.py").write_text(text)
    with pytest.raises(DeclarationError, match=r'sends "order\.expire" of the sample "orders".*add "orders"'):
        ProcessRegistry.load(["kiosk.counting", "kiosk.sending"])


def test_an_event_that_no_aggregate_records_is_refused(kiosk: Path) -> None:
    said = (
        r'"order\.placed", which no aggregate of this deployment records: add "kiosk\.domain", which has the aggregate '
        rf'"order" \({kiosk}/domain\.py:\d+\), to HEADWATER_MODULES \(declared in "kiosk\.'
    )
    with pytest.raises(ViewDeclarationError, match=r'view "orders_placed": reads ' + said):
        ViewRegistry.load(["kiosk.views"])
    own = EXPIRY.replace("headwater.samples.orders.domain import order", "kiosk import domain as order")
    (kiosk / "expiry.py").write_text(own)
    with pytest.raises(DeclarationError, match=r'process "expiry" handles ' + said):
        ProcessRegistry.load(["kiosk.expiry"])
    assert set(ProcessRegistry.load(["kiosk.expiry", "kiosk.domain"]).processes) == {"expiry"}


def test_an_event_that_evolve_does_not_name_is_refused_with_what_to_write(kiosk: Path) -> None:
    lost = 'class Lost(Event, type="order.lost"):\n    order_id: str\n\nclass Place('
    (kiosk / "domain.py").write_text(DOMAIN.replace("class Place(", lost))
    (kiosk / "views.py").write_text(VIEWS.format(events="kiosk.domain").replace("Placed", "Lost"))
    said = (
        'reads "order.lost", which no aggregate of this deployment records: name "Lost" in the annotation of "evolve"'
    )
    with pytest.raises(ViewDeclarationError, match=said):
        ViewRegistry.load(["kiosk"])


def test_an_event_whose_aggregate_is_in_a_module_that_is_not_named_is_refused(kiosk: Path) -> None:
    (kiosk / "happened.py").write_text(
        'from headwater import Event\n\nclass Placed(Event, type="order.placed"):\n    order_id: str\n'
    )
    (kiosk / "views.py").write_text(VIEWS.format(events="kiosk.happened"))
    said = (
        'which no aggregate of this deployment records: add the module of the aggregate "order", whose "evolve" handles'
    )
    with pytest.raises(ViewDeclarationError, match=said):
        ViewRegistry.load(["kiosk.views"])
