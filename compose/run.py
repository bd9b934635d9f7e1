"""`make run`: the stack and the services, with the demo's listings loaded, until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

import httpx
from rich.console import Console

from compose import sacramento
from compose.demo import Client, wait_for_views
from compose.services import api_port, service_specs
from compose.settings import HOST, StackSettings
from compose.stack import Stack
from projections.supervision.supervisor import Supervisor

console = Console(stderr=True)

WHERE_TO_LOOK = """
Headwater is up. Ctrl-C stops it; the data stays in {state}.

  the API's documentation   {api}/docs
  one listing               curl {api}/views/listings/sacramento-1
  a search                  curl '{api}/views/listing_search/search?q=condo&price.lte=150000&sort=price'
  a city's market           curl {api}/views/city_market/Sacramento
  change a price            curl -X POST {api}/commands/listing.change_price \\
                              -H 'content-type: application/json' \\
                              -d '{{"listing_id": "sacramento-1", "price": 61000}}'
  its history               curl {api}/streams/listing/sacramento-1
  rebuild a view            .venv/bin/replay rebuild listings
  logs                      {state}/logs
"""


def main() -> int:
    """Start everything, load the listings, print where to look, and stay until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings, port = StackSettings.from_environ(os.environ), api_port(os.environ)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with Stack(settings):
        services = Supervisor(service_specs(settings, port, {}))
        services.start()
        try:
            api = f"http://{HOST}:{port}"
            loaded = asyncio.run(load(api))
            console.print(f"loaded {loaded} listings through the command API")
            console.print(WHERE_TO_LOOK.format(api=api, state=settings.state), markup=False, highlight=False)
            stop.wait()
        finally:
            services.stop()
    return 0


async def load(api: str) -> int:
    """List the demo's properties; those that an earlier run listed are answered from their receipts."""
    wait_for_views(api)
    async with httpx.AsyncClient(base_url=api, timeout=60.0) as http:
        client, requests = Client(http), sacramento.list_all(sacramento.load())
        await asyncio.gather(
            *(client.send(request, command_id=f"load-{request.body['listing_id']}") for request in requests)
        )
    return len(requests)
