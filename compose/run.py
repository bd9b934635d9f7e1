"""`make run`: the stack and the services, with the samples loaded, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console

from api.settings import ACCESS_LOG
from compose.demo import SAMPLES, wait_for_views
from compose.errors import ComposeError
from compose.sample import Client, Deployment, open_http
from compose.services import api_port, required, service_specs
from compose.settings import HOST, StackSettings
from compose.stack import Stack, parts_for, parts_text
from eventlog.capturing import SourceRegistry
from eventlog.capturing.settings import SourceSettings
from eventlog.errors import SettingError
from eventlog.modules import DEFAULT_MODULES
from projections.supervision.supervisor import Supervisor

MODULES: Final = "HEADWATER_MODULES"
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

HEAD: Final = """
Headwater is running. The documentation of the API is at {api}/docs.
Ctrl-C stops it. Its data is in {state}, its logs are in {logs}.

To try in another terminal:
"""

TO_TRY: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "listings": (
        ("one listing", "curl -sS {api}/views/listings/sacramento-1"),
        ("a search", "curl -sS '{api}/views/listing_search/search?q=condo&price.lte=150000&sort=price&limit=3'"),
        ("a city's market", "curl -sS {api}/views/city_market/Sacramento"),
        (
            "change a price",
            "curl -sS -X POST {api}/commands/listing.change_price -H 'content-type: application/json' "
            '-d \'{{"listing_id": "sacramento-1", "price": 61000}}\'',
        ),
        ("its history", "curl -sS {api}/streams/listing/sacramento-1"),
    ),
    "orders": (
        ("the history of an order: placed, paid, confirmed", "curl -sS {api}/streams/order/order-1"),
        (
            "place another order",
            "curl -sS -X POST {api}/commands/order.place -H 'content-type: application/json' "
            '-d \'{{"order_id": "mine", "customer": "Ada", '
            '"lines": [{{"sku": "tea", "quantity": 2, "unit_cents": 250}}]}}\'',
        ),
        (
            "pay it; then a process reserves its stock",
            "curl -sS -X POST {api}/commands/order.pay -H 'content-type: application/json' "
            '-d \'{{"order_id": "mine", "amount_cents": 500}}\'',
        ),
        ("its history", "curl -sS {api}/streams/order/mine"),
        ("the history of the stock of tea", "curl -sS {api}/streams/stock/tea"),
    ),
    "shop": (
        ("a customer: a row of the shop's database, with the payments", "curl -sS {api}/views/customer_360/1"),
        ("a search of its products", "curl -sS '{api}/views/product_search/search?q=saffron&category=tea&limit=3'"),
        (
            "receive a payment; then read the customer again",
            "curl -sS -X POST {api}/commands/payment.receive -H 'content-type: application/json' "
            '-d \'{{"payment_id": "mine", "customer_id": "1", "amount_cents": 2500}}\'',
        ),
        ("change the database by ordinary SQL", "{bin}/python -m compose.shop traffic --transactions 500"),
        ("how far it is captured", "{bin}/python -m eventlog.sources status"),
    ),
    "sales": (
        ("the sales of each category", "curl -sS '{api}/views/category_sales?sort=-cents'"),
        (
            "sell something",
            "curl -sS -X POST {api}/commands/sale.make -H 'content-type: application/json' "
            '-d \'{{"sale_id": "mine", "customer": "me", "country": "AT", "category": "books", "cents": 1250}}\'',
        ),
        ("who bought most per minute", "curl -sS '{api}/views/sales_per_minute?sort=-sales&limit=5'"),
        ("which tiers a customer was in, and when", "curl -sS '{api}/views/membership_tiers?sort=-valid_from&limit=5'"),
        (
            "sales with the tier and the tax rate of their time: reported after four minutes",
            "curl -sS '{api}/views/taxed_sales?sort=-made_at&limit=5'",
        ),
    ),
    "sensors": (
        ("what the sensors measured, per 5 seconds", "curl -sS '{api}/views/sensor_averages?sort=-start&limit=5'"),
        (
            "report a reading; then read its 5 seconds",
            "curl -sS -X POST {api}/observations/sensor_read -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"sensor": "desk", "value": 21.5}}}}\'',
        ),
        ("its averages", "curl -sS '{api}/views/sensor_averages?sensor=desk&sort=-start&limit=3'"),
        (
            "who went silent: reported after four minutes",
            "curl -sS '{api}/views/sensor_silences?sort=-silent_since&limit=5'",
        ),
        ("readings that came too late for that", "curl -sS '{api}/views/sensor_silences_late?sort=-late_s&limit=5'"),
    ),
    "ski_lifts": (
        ("the busiest lift, in 10 minutes every 5 minutes", "curl -sS '{api}/views/busiest_lift?sort=-start&limit=3'"),
        (
            "ride a lift",
            "curl -sS -X POST {api}/observations/lift_ridden -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"lift": "glacier", "ski_pass": "mine"}}}}\'',
        ),
        ("its rides", "curl -sS '{api}/views/lift_rides?lift=glacier&sort=-start&limit=3'"),
    ),
    "web": (
        ("views of each page, per 5 minutes", "curl -sS '{api}/views/page_views?sort=-start,-views&limit=5'"),
        (
            "open a page",
            "curl -sS -X POST {api}/observations/page_opened -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", '
            '"data": {{"view_id": "mine-1", "visitor": "me", "page": "/tea"}}}}\'',
        ),
        ("its views", "curl -sS '{api}/views/page_views?page=/tea&sort=-start&limit=3'"),
        ("visits, which end after 30 minutes without a page", "curl -sS '{api}/views/visits?sort=-start&limit=5'"),
        ("clicks per search, two hours later", "curl -sS '{api}/views/click_through?sort=-hour,-rate&limit=5'"),
    ),
    "buses": (
        ("the buses that are latest", "curl -sS '{api}/views/bus_positions?sort=-delay_s&limit=5'"),
        ("those within two kilometres of a place", "curl -sS '{api}/views/bus_positions?near=48.2,16.37&within_km=2'"),
        (
            "say where a bus is: shown within 30 seconds",
            "curl -sS -X POST {api}/observations/bus_located -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", '
            '"data": {{"vehicle": "mine", "latitude": 48.2, "longitude": 16.37}}}}\'',
        ),
        ("the fastest legs, after four minutes", "curl -sS '{api}/views/bus_legs?sort=-kmh&limit=5'"),
    ),
    "saved_searches": (
        ("homes that saved searches have found", "curl -sS '{api}/views/search_alerts?sort=-offered_at&limit=3'"),
        (
            "save a search",
            "curl -sS -X POST {api}/commands/saved_search.save -H 'content-type: application/json' "
            '-d \'{{"search_id": "mine", "city": "Linz", "max_price": 300000, "words": "balcony"}}\'',
        ),
        (
            "offer a home",
            "curl -sS -X POST {api}/observations/home_offered -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"home": "mine", "city": "Linz", "price": 250000, '
            '"beds": 2, "description": "With a balcony.", "latitude": 48.3, "longitude": 14.29}}}}\'',
        ),
        ("what the search has found", "curl -sS '{api}/views/search_alerts?search=mine&limit=3'"),
    ),
    "timelines": (
        (
            "the timeline of a reader",
            "curl -sS '{api}/views/home_timelines?reader=eve&sort=-written_at&limit=3'",
        ),
        (
            "write a post, which you see",
            "curl -sS -X POST {api}/observations/post_written -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"post": "mine-1", "author": "me", "text": "Hello."}}}}\'',
        ),
        (
            "follow another author",
            "curl -sS -X POST {api}/observations/author_followed -H 'content-type: application/json' "
            '-d \'{{"id": "mine-2", "source": "me", "data": {{"reader": "me", "author": "ada"}}}}\'',
        ),
        ("your timeline", "curl -sS '{api}/views/home_timelines?reader=me&sort=-written_at&limit=3'"),
    ),
    "shop_floor": (
        ("the three best sellers", "curl -sS '{api}/views/top_sellers?sort=-cents&limit=3'"),
        (
            "sell something",
            "curl -sS -X POST {api}/observations/item_sold -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"product": "tea", "pieces": 100, "cents": 45000}}}}\'',
        ),
        (
            "the three best sellers of today",
            'curl -sS "{api}/views/daily_sellers?day=$(date -u +%Y-%m-%dT00:00:00Z)&sort=-cents&limit=3"',
        ),
    ),
    "checkouts": (
        (
            "payments on a new device after three refused ones: reported after three minutes",
            "curl -sS '{api}/views/suspect_checkouts?sort=-paid_at&limit=3'",
        ),
        (
            "pay from a device",
            "curl -sS -X POST {api}/observations/checkout_paid -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", "data": {{"account": "mine", "device": "pc", "cents": 2500}}}}\'',
        ),
    ),
    "payments": (
        (
            "cards charged several times within 10 seconds: reported after three minutes",
            "curl -sS '{api}/views/rapid_payments?sort=-start&limit=3'",
        ),
        (
            "charge a card",
            "curl -sS -X POST {api}/observations/card_charged -H 'content-type: application/json' "
            '-d \'{{"id": "mine-1", "source": "me", '
            '"data": {{"card": "mine", "cents": 2500, "latitude": 48.21, "longitude": 16.37}}}}\'',
        ),
        ("what happened to one of these cards: an alert blocks it", "curl -sS {api}/streams/card/card-1"),
        (
            "open it again",
            "curl -sS -X POST {api}/commands/card.unblock -H 'content-type: application/json' "
            '-d \'{{"card": "card-1"}}\'',
        ),
        ("payments far from the holder's phone", "curl -sS '{api}/views/distant_payments?sort=-paid_at&limit=3'"),
        (
            "payments above all earlier ones of the card",
            "curl -sS '{api}/views/record_payments?sort=-paid_at&limit=3'",
        ),
    ),
}
"""Commands to try with each shipped domain."""
TO_REBUILD: Final[Mapping[str, str]] = {
    "listings": "listings",
    "shop": "customer_360",
    "sales": "category_sales",
    "saved_searches": "search_alerts",
    "sensors": "sensor_averages",
    "ski_lifts": "lift_rides",
    "timelines": "home_timelines",
    "web": "page_views",
    "payments": "rapid_payments",
    "checkouts": "suspect_checkouts",
    "buses": "bus_positions",
    "shop_floor": "top_sellers",
}
"""The view of each shipped domain that is rebuilt; `streams` for others."""
TO_TRY_ALWAYS: Final = (
    ("the state of the views", "{bin}/replay status"),
    ("rebuild a view while it answers queries", "{bin}/replay rebuild {view}"),
    ("follow the logs", "{bin}/python -m compose logs --follow"),
)


def main(modules: Sequence[str]) -> int:
    """Start everything, load the samples, print what to try, and stay until SIGINT or SIGTERM.

    modules: the names that HEADWATER_MODULES would have.
    """
    settings, port = StackSettings.from_environ(os.environ), api_port(os.environ)
    api, console = f"http://{HOST}:{port}", Console(stderr=True, highlight=False, markup=False)
    log_to_file(settings.logs / "run.log", console)
    for number in STOPPING:
        signal.signal(number, _leave)
    try:
        with ExitStack() as running:
            parts = parts_for(modules)
            console.print(f"starting {parts_text(parts)}")
            running.enter_context(Stack(settings, parts))
            console.print("starting the handler, the projections and the API")
            environment = environment_of(settings, modules, os.environ)
            watched = watched_sources(modules, {**os.environ, **environment}, console)
            services = Supervisor(service_specs(settings, port, environment, watched))
            running.callback(services.stop)
            running.callback(console.print, "stopping")
            services.start()
            deployment = Deployment(settings.endpoints, {**os.environ, **environment})
            asyncio.run(load(api, modules, deployment, console))
            print(page(api, settings, os.environ, modules), flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0


def environment_of(settings: StackSettings, modules: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the services beside the addresses of the stack's servers, which `service_specs` adds."""
    missing = {name: value for name, value in required(settings, modules).items() if name not in environ}
    return {**missing, **settings.endpoints.environment(), ACCESS_LOG: "true", MODULES: ",".join(modules)}


def watched_sources(modules: Sequence[str], environ: Mapping[str, str], console: Console) -> list[str]:
    """The sources whose addresses are known; the console shows which variable another one lacks."""
    found = []
    for name, source in SourceRegistry.load(modules).sources.items():
        try:
            SourceSettings.from_environment(source, environ)
        except SettingError as error:
            console.print(f'connectors of source "{name}" are not watched: {error}', soft_wrap=True)
        else:
            found.append(name)
    return found


def page(api: str, settings: StackSettings, environ: Mapping[str, str], modules: Sequence[str]) -> str:
    """Commands to try: each on one line below a comment, so that it can be pasted in a shell."""
    folder = Path(sys.executable).parent
    here = Path.cwd()
    names = {"api": api, "bin": shlex.quote(str(folder.relative_to(here) if folder.is_relative_to(here) else folder))}
    names["view"] = next((view for name, view in TO_REBUILD.items() if name in modules), "streams")
    if tuple(modules) != DEFAULT_MODULES:
        environ = {**environ, MODULES: ",".join(modules)}
    lines = [HEAD.format(api=api, state=settings.state, logs=settings.logs)]
    exported = required(settings, modules) | variables(settings, environ)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in exported.items()]
    if exports:
        lines += ["# settings for the commands below", *exports, ""]
    for title, command in (*(each for name in modules for each in TO_TRY.get(name, ())), *TO_TRY_ALWAYS):
        lines += [f"# {title}", command.format(**names)]
    return "\n".join(lines)


def variables(settings: StackSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that another terminal needs to reach these servers; empty if all have their defaults."""
    given = {name: value for name, value in environ.items() if name.startswith("HEADWATER_") and "_PORT" not in name}
    usual = StackSettings(settings.state).endpoints.environment()
    ours = settings.endpoints.environment()
    moved = {name: value for name, value in ours.items() if value != usual[name]}
    return {name: value for name, value in sorted(given.items()) if name not in ours} | moved


def log_to_file(path: Path, console: Console) -> None:
    """Log to `path`; the terminal only shows if a part was given up."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(file)
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line for every probe and listing
    given_up = _Shown(console)
    given_up.setLevel(logging.ERROR)
    logging.getLogger("projections.supervision").addHandler(given_up)


async def load(api: str, modules: Sequence[str], deployment: Deployment, console: Console) -> None:
    """Load the samples among `modules`, and wait until the views show them, so that the first queries find rows.

    Commands of an earlier run are answered from their receipts.
    """
    wait_for_views(api)
    async with open_http(api) as http:
        client, rows = Client(http), dict[str, str]()
        for domain in [name for name in modules if name in SAMPLES]:
            sample = SAMPLES[domain]()
            console.print(f"loading {domain}")
            await sample.prepare(client, deployment)
            for requests in sample.loading():
                await asyncio.gather(*(client.send(request, command_id) for command_id, request in requests.items()))
            rows |= sample.rows
        if not rows:
            return
        console.print("waiting until the views show them")
        try:
            await client.settle(rows)
        except ComposeError as error:  # continue, because slow views catch up later
            console.print(str(error), soft_wrap=True)


class _Shown(logging.Handler):
    """Shows messages on the console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(record.getMessage(), style="red", soft_wrap=True)


def _leave(*_: object) -> NoReturn:
    """Stop whatever is running; only the first signal counts, because a second one would interrupt the stop."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
