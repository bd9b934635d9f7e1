"""A client for servers on this machine, made once: httpx's functions read the certificates of all authorities for each
request, in 25 ms of the processor."""

from __future__ import annotations

from functools import cache

import httpx


@cache
def local_http() -> httpx.Client:
    """Without a proxy, and without a connection that stays open: a server may be another one at the next request."""
    return httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
