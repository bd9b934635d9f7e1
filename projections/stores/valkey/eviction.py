"""Refuses a Valkey that deletes rows when its memory is full: a patch would make a new row of what came after."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from valkey.exceptions import NoPermissionError

from headwater.projections.errors import StoreUnavailable
from headwater.projections.stores.valkey.client import NAME, translated

log = logging.getLogger(__name__)

CHECK_S: Final = 60.0
"""Time between two looks at the server's policy, which can be changed while it runs."""
EVICTING: Final = "allkeys-"
"""Begins the policies that delete keys without an expiry, such as rows."""


class Eviction:
    """Watches the policy of one server.

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
