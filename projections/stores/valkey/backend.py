"""How processes use this store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.rows import Compared
from headwater.projections.stores.store import Target
from headwater.projections.stores.valkey.added_rankings import add_rankings, missing_rankings
from headwater.projections.stores.valkey.client import NAME
from headwater.projections.stores.valkey.ranking_entries import ValkeyRankings, row_of
from headwater.projections.stores.valkey.rankings import ranked_of
from headwater.projections.stores.valkey.rows import ValkeyRows
from headwater.projections.stores.valkey.store import ValkeyStore
from headwater.projections.stores.writer import StoredRows
from headwater.projections.view import View

CONNECTED: Final = ("client|setinfo", "client|setname", "echo", "ping", "select")
"""Commands of the client itself."""
READS: Final = ("eval_ro", "evalsha_ro", "hget", "hgetall", "sismember", "zcard", "zcount", "zrange")
"""Of the API. `…_ro` runs scripts that write nothing."""
WRITES: Final = (
    "del", "evalsha", "get", "hdel", "hget", "hgetall", "hmget", "hset", "incrby", "info", "sadd", "scan",
    "script|load", "set", "smembers", "unlink", "zadd", "zrem", "zscan", "zscore",
)  # fmt: skip
"""Of who writes rows and compares them. `info` has the server's eviction policy, which must not delete rows."""
FILLED_PER_S: Final = 25_000.0
"""Measured on two cores shared with the servers."""


def _rankings(view: View, settings: StoreSettings, compared: Sequence[Target]) -> Mapping[str, Compared]:
    return {"valkey rankings": Compared(ValkeyRankings(settings, compared), row_of)} if ranked_of(view) else {}


def grants(settings: StoreSettings) -> str:
    """The users, as lines for `valkey-cli`. A new user is off until it has a password."""
    users: dict[Program, tuple[str, tuple[str, ...]]] = {
        Program.PROJECTIONS: ("~", WRITES),
        Program.OPERATOR: ("~", WRITES),
        Program.API: ("%R~", READS),
    }
    lines = []
    for program, (keys, commands) in users.items():
        allowed = " ".join(f"+{each}" for each in (*CONNECTED, *commands))
        name = account(settings.environment, program)
        lines.append(f"ACL SETUSER {name} resetkeys resetchannels nocommands {keys}{settings.environment}:* {allowed}")
    return "\n".join(lines) + "\n"


_ROWS: Final = partial(StoredRows, ValkeyRows, NAME)
BACKEND: Final = Backend(
    ValkeyStore,
    _ROWS,
    _rankings,
    missing=missing_rankings,
    add_missing=add_rankings,
    added_per_s=FILLED_PER_S,
    grants=grants,
    single_rows=_ROWS,
)
