"""The client of Valkey, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import valkey
from valkey.exceptions import AuthenticationError, NoPermissionError, ValkeyError

from headwater.projections.errors import LacksRight, StoreUnavailable

NAME: Final = "Valkey"
CONNECT_S: Final = 3
ANSWER_S: Final = 10
"""How long it may take to connect, and to answer."""


def connect(url: str) -> Any:  # half of the client's methods have no types
    """A client, which connects at its first use."""
    return valkey.Valkey.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=CONNECT_S)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the client's errors as StoreUnavailable."""
    try:
        yield
    except (ValkeyError, OSError) as error:
        raise unavailable(error) from error


def unavailable(error: ValkeyError | OSError) -> StoreUnavailable:
    """What the client's error means."""
    kind = LacksRight if isinstance(error, NoPermissionError | AuthenticationError) else StoreUnavailable
    return kind(NAME, str(error))
