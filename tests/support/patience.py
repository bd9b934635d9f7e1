"""Time for servers of a machine that stands still for some seconds, in tests that ask them once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.waiting import BOUND_S

LIMITS_S: Final = (
    "headwater.projections.stores.postgres.client.CONNECT_S",
    "headwater.projections.stores.valkey.client.CONNECT_S",
    "headwater.projections.stores.valkey.client.ANSWER_S",
    "headwater.projections.stores.elasticsearch.store.ANSWER_S",
    "headwater.projections.generations.registry.database.REGISTRY_S",
    "headwater.projections.generations.registry.registry.REGISTRY_S",
    "headwater.projections.generations.registry.database.ANSWER_S",
    "headwater.api.reads.postgres.CONNECT_S",
    "headwater.api.reads.elasticsearch.ANSWER_S",
    "headwater.api.reads.valkey.TIMEOUT_S",
)
"""After which clients call a server unavailable. Loaders and callers of the API ask again then."""
KEYS_S: Final = "headwater.eventlog.personal.postgres.ANSWER_S"
"""Likewise of the store of keys. Its tests need it: a client of it tries again and again for so long."""
LIMIT_MS: Final = "headwater.api.reads.postgres.STATEMENT_TIMEOUT_MS"


@contextmanager
def patient(*others: str) -> Iterator[None]:
    """Let the clients of this process wait for as long as a test does; what they do about a server that gives no answer
    is tested with servers that never do. others: names of more limits.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in (*LIMITS_S, *others):
            patched.setattr(name, int(BOUND_S))
        patched.setattr(LIMIT_MS, int(BOUND_S) * 1000)
        yield
