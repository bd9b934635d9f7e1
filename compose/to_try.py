"""Commands to try with each shipped domain: `make run` prints them, and tests run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
        (
            "those within two kilometres of a place",
            "curl -sS '{api}/views/bus_positions/search?near=48.2,16.37&within_km=2'",
        ),
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
TO_TRY_ALWAYS: Final = (
    ("the state of the views", "{bin}/replay status"),
    ("rebuild a view while it answers queries", "{bin}/replay rebuild {view}"),
    ("follow the logs", "{bin}/python -m compose logs --follow"),
)
