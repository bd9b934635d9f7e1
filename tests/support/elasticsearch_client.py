"""A client of Elasticsearch that waits for as long as a busy machine takes."""

from __future__ import annotations

from elasticsearch import Elasticsearch

from tests.support.waiting import BOUND_S


def elasticsearch(url: str) -> Elasticsearch:
    """Its own bound is 10 s, which a server that stands still for a while is not back in."""
    return Elasticsearch(url, request_timeout=BOUND_S)
