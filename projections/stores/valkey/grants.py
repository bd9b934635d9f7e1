"""The users of Valkey: which keys and commands each of them may use."""

from __future__ import annotations

from typing import Final

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings

CONNECTED: Final = ("client|setinfo", "client|setname", "echo", "ping", "select")
"""Commands of the client itself."""
READS: Final = ("eval_ro", "evalsha_ro", "hget", "hgetall", "sismember", "zcard", "zcount", "zrange")
"""Of the API. `…_ro` runs scripts that write nothing."""
WRITES: Final = (
    "del", "evalsha", "get", "hdel", "hget", "hgetall", "hmget", "hset", "incrby", "info", "sadd", "scan",
    "script|load", "set", "unlink", "zadd", "zrem", "zscan", "zscore",
)  # fmt: skip
"""Of who writes rows and compares them. `info` has the server's eviction policy, which must not delete rows."""


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
