"""How processes use this store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.rows import Compared
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
    "script|load", "set", "unlink", "zadd", "zrem", "zscan", "zscore",
)  # fmt: skip
"""Of who writes rows and compares them. `info` has the server's eviction policy, which must not delete rows."""


def _rankings(view: View, settings: StoreSettings) -> Mapping[str, Compared]:
    return {"valkey rankings": Compared(ValkeyRankings(settings), row_of)} if ranked_of(view) else {}


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
    grants=grants,
    single_rows=_ROWS,
)
