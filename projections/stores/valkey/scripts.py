"""The scripts of the Valkey store: each takes effect as a whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from valkey.exceptions import NoScriptError

from headwater.projections.stores.valkey.client import translated

GONE: Final = -1
"""A script's answer: the generation is gone."""
CHANGED: Final = -2
"""The ledger is not the one that was looked up: another loader wrote it, or the server was restarted and has lost what
was written last. Rows may lack patches that the ledger had, so no later one may be written."""
DONE: Final = -3
"""All rows of bulk are there, and the ledgers are no longer INCOMPLETE."""

# KEYS: the row, its generation's ledgers, and the sorted sets that change. ARGV: the partition of the row's patches,
# the digest of its ledger as it was looked up, the guard as it was read (empty: none), the new guard, state (empty: the
# row is removed) and document (empty: the row is deleted). If the view has rankings, or the row is replaced or removed,
# also the state as it was read, since the row's places until now follow from it (a stream view's batch that is repeated
# changes the row, but not the guard), and per sorted set a score (empty: remove) and a member. A script takes effect as
# a whole or not at all, so rows and sorted sets never differ. 1: written, 0: the row has changed.
WRITE_ROW: Final = f"""
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return {GONE} end
if redis.sha1hex(held) ~= ARGV[2] then return {CHANGED} end
if (redis.call('HGET', KEYS[1], 'guard') or '') ~= ARGV[3] then return 0 end
if ARGV[7] and (redis.call('HGET', KEYS[1], 'state') or '') ~= ARGV[7] then return 0 end
if ARGV[5] == '' then redis.call('DEL', KEYS[1]) else
    redis.call('HSET', KEYS[1], 'guard', ARGV[4], 'state', ARGV[5])
    if ARGV[6] == '' then redis.call('HDEL', KEYS[1], 'doc') else redis.call('HSET', KEYS[1], 'doc', ARGV[6]) end
end
for number = 3, #KEYS do
    local ranking, score, member = KEYS[number], ARGV[2 * number + 2], ARGV[2 * number + 3]
    if score == '' then redis.call('ZREM', ranking, member) else redis.call('ZADD', ranking, score, member) end
end
return 1
"""

# KEYS: a generation's ledgers. ARGV: partition, the digest of its ledger as it was looked up, the new ledger.
WRITE_LEDGER: Final = f"""
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then return {GONE} end
if redis.sha1hex(held) ~= ARGV[2] then return {CHANGED} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""

INCOMPLETE: Final = b',"incomplete":true}'
"""The end of a ledger until all rows of bulk are there."""

# KEYS: a generation's ledgers, and the number of rows that bulk wrote. ARGV: how many there must be at least, and
# INCOMPLETE. The answer is their number if they are too few. A call that is repeated finds no INCOMPLETE.
COMPLETE: Final = f"""
local held = redis.call('HGETALL', KEYS[1])
if #held == 0 then return {GONE} end
if string.sub(held[2], -#ARGV[2]) ~= ARGV[2] then return {DONE} end
local rows = tonumber(redis.call('GET', KEYS[2]) or '0')
if rows < tonumber(ARGV[1]) then return rows end
for number = 1, #held, 2 do
    redis.call('HSET', KEYS[1], held[number], string.sub(held[number + 1], 1, -#ARGV[2] - 1) .. '}}')
end
redis.call('DEL', KEYS[2])
return {DONE}
"""


def run(client: Any, script: str, calls: Sequence[tuple[Any, ...]]) -> list[int]:
    """The results of a script for each of `calls`; a call begins with the number of its keys, and the keys."""
    if not calls:
        return []
    with translated():
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return _run_loaded(client, digest, calls)
        except NoScriptError:  # a new server, or one that was restarted
            client.script_load(script)
            return _run_loaded(client, digest, calls)


def _run_loaded(client: Any, digest: str, calls: Sequence[tuple[Any, ...]]) -> list[int]:
    with client.pipeline(transaction=False) as pipeline:
        for call in calls:
            pipeline.execute_command("EVALSHA", digest, *call)
        return [int(answer) for answer in pipeline.execute()]
