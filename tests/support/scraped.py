"""What Prometheus would read of processes under test."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import httpx
from prometheus_client.parser import text_string_to_metric_families

from compose.ports import free_port
from tests.support.local_http import local_http

Labels = tuple[tuple[str, str], ...]


def free_ports_in_a_row(number: int) -> int:
    """The first of so many ports on which nothing listens now."""
    while True:
        first = free_port()
        try:
            with ExitStack() as held:
                for port in range(first, first + number):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
                return first
        except OSError:
            continue


def scraped(port: int, name: str) -> dict[Labels, float]:
    """The values of a metric, by its labels in their order; empty as long as nothing listens at the port."""
    try:
        text = local_http().get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    except httpx.TransportError:
        return {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {tuple(sorted(each.labels.items())): each.value for each in samples if each.name == name}
