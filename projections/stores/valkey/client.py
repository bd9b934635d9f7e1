"""The client of Valkey, its errors, and the policies of servers that it refuses."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import valkey
from valkey.exceptions import AuthenticationError, NoPermissionError, ValkeyError

from headwater.projections.errors import LacksRight, StoreUnavailable

NAME: Final = "Valkey"
CONNECT_S: Final = 3
ANSWER_S: Final = 10
"""How long it may take to connect, and to answer."""

CHECK_S: Final = 60.0
"""Time between two looks at the server's policy, which can be changed while it runs."""
EVICTING: Final = "allkeys-"
"""Begins the policies that delete keys without an expiry, such as rows."""

log = logging.getLogger(__name__)


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


class Eviction:
    """Refuses a server that deletes rows when its memory is full: a patch would make a new row of what came after.

    Nobody can tell a row that was deleted from one that never was. So after the server has deleted any key under such a
    policy, the generations have lost rows.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._looked = -math.inf

    def refuse(self, ledgers: Sequence[str]) -> None:
        """Raise StoreUnavailable while the server's policy deletes rows.

        ledgers: the keys of the generations that are used. They are removed if the server has deleted anything.
        """
        if time.monotonic() - self._looked < CHECK_S:
            return
        with translated():
            try:
                policy = str(self._client.info("memory").get("maxmemory_policy", ""))
                evicted = int(self._client.info("stats").get("evicted_keys", 0))
            except NoPermissionError as error:
                log.warning("cannot check the maxmemory-policy of Valkey, which must not be %s*: %s", EVICTING, error)
                policy, evicted = "", 0
            if policy.startswith(EVICTING):
                if evicted and ledgers:
                    self._client.unlink(*ledgers)
                cause = f'its maxmemory-policy "{policy}" deletes rows when its memory is full'
                raise StoreUnavailable(NAME, f'{cause}: set it to "noeviction"')
        self._looked = time.monotonic()
