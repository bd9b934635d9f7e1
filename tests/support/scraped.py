"""What Prometheus would read of processes under test."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.local_http import local_http

Labels = tuple[tuple[str, str], ...]


def scraped(port: int, name: str) -> dict[Labels, float]:
    """The values of a metric, by its labels in their order; empty as long as nothing listens at the port."""
    try:
        text = local_http().get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    except httpx.TransportError:
        return {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {tuple(sorted(sample.labels.items())): sample.value for sample in samples if sample.name == name}
