"""The client of Valkey, the scripts that it runs, and the ledgers of a generation."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
import valkey
from valkey.exceptions import AuthenticationError, NoPermissionError, NoScriptError, ValkeyError

from headwater.projections.errors import LacksRight, StoreUnavailable
from headwater.projections.stores.names import cache_ledger
from headwater.projections.stores.store import Ledger, Target
from headwater.projections.table.patch import places_from_json, places_to_json

NAME: Final = "Valkey"
CONNECT_S: Final = 3
ANSWER_S: Final = 10
"""How long it may take to connect, and to answer."""

EVICTING: Final = "allkeys-"
"""Begins the policies that delete keys without an expiry, such as rows."""

log = logging.getLogger(__name__)

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


def refuse_evictions(client: Any, ledgers: Sequence[str]) -> None:
    """Raise StoreUnavailable if the server deletes rows when its memory is full: a patch would make a new row.

    Nobody can tell a row that was deleted from one that never was. So after the server has deleted any key under such a
    policy, the generations have lost rows.

    ledgers: the keys of the generations that are used. They are removed if the server has deleted anything.
    """
    with translated():
        try:
            policy = str(client.info("memory").get("maxmemory_policy", ""))
            evicted = int(client.info("stats").get("evicted_keys", 0))
        except NoPermissionError as error:
            log.warning("cannot check the maxmemory-policy of Valkey, which must not be %s*: %s", EVICTING, error)
            policy, evicted = "", 0
        if policy.startswith(EVICTING):
            if evicted and ledgers:
                client.unlink(*ledgers)
            cause = f'its maxmemory-policy "{policy}" deletes rows when its memory is full'
            raise StoreUnavailable(NAME, f'{cause}: set it to "noeviction"')


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


@dataclass(frozen=True)
class KnownLedgers:
    """The ledgers of a generation; none if it is incomplete.

    entries: as they were looked up.
    """

    ledgers: dict[int, Ledger]
    entries: Mapping[int, bytes]

    @classmethod
    def of(cls, stored: Mapping[bytes, bytes]) -> KnownLedgers:
        """From the fields of a hash."""
        is_complete = not any(entry.endswith(INCOMPLETE) for entry in stored.values())
        entries = {int(partition): entry for partition, entry in stored.items() if is_complete}
        held = {partition: orjson.loads(entry) for partition, entry in entries.items()}
        ledgers = {
            partition: Ledger(entry["next"], places_from_json(entry["applied"])) for partition, entry in held.items()
        }
        return cls(ledgers, entries)

    def digest(self, partition: int) -> str:
        """As the scripts make it."""
        return hashlib.sha1(self.entries[partition], usedforsecurity=False).hexdigest()


def looked_up(client: Any, environment: str, targets: Sequence[Target]) -> list[KnownLedgers]:
    """The ledgers of generations; raises StoreUnavailable."""
    with translated(), client.pipeline(transaction=False) as pipeline:
        for target in targets:
            pipeline.hgetall(cache_ledger(environment, *target.id))
        return [KnownLedgers.of(entries) for entries in pipeline.execute()]


def ledger_to_json(ledger: Ledger) -> bytes:
    """A ledger as it is stored, without spaces."""
    return orjson.dumps({"next": ledger.next_offset, "applied": places_to_json(ledger.applied)})
