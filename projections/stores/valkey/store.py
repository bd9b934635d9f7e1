"""Views as Valkey hashes, one per row: each has its guard and is written by compare-and-set, with its rankings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from headwater.eventlog.access import Program, account
from headwater.projections.errors import GenerationMissing
from headwater.projections.limits import BULK_ROWS, CHUNK_ROWS
from headwater.projections.settings import StoreSettings
from headwater.projections.stores import ledgers
from headwater.projections.stores.backend import Backend, Compared, Rows, Size, without_empty
from headwater.projections.stores.documents import DocumentForm, is_deleted
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.names import (
    cache_bulk_rows,
    cache_generation,
    cache_key,
    cache_ledger,
    cache_pointer,
    cache_rankings,
)
from headwater.projections.stores.store import Batch, BulkWriter, Ledger, Target, ViewStore, no_fault
from headwater.projections.stores.valkey.client import (
    CHANGED,
    COMPLETE,
    DONE,
    GONE,
    INCOMPLETE,
    NAME,
    WRITE_LEDGER,
    WRITE_ROW,
    KnownLedgers,
    connect,
    ledger_to_json,
    looked_up,
    refuse_evictions,
    run,
    translated,
)
from headwater.projections.stores.valkey.rankings import (
    Rankings,
    ScoredMember,
    ValkeyRankings,
    changed_places,
    ranked_of,
    row_of,
)
from headwater.projections.stores.writer import (
    Advanced,
    Encoded,
    FirstKeys,
    LedgerChanged,
    ReadRow,
    RowStore,
    StoredRows,
    Writer,
)
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import places_from_json, places_to_json
from headwater.projections.view import View

if TYPE_CHECKING:
    import pyarrow as pa


CHECK_S: Final = 60.0
"""Time between two looks at the server's policy, which can be changed while it runs."""
SCRIPT_ROWS: Final = 250
"""Rows that one run of a script writes: the server answers nobody else meanwhile, about a millisecond."""
SCRIPT_BYTES: Final = 1024 * 1024
"""And the bytes of their states and documents, with those of the last row beyond it: rows may be large."""

# KEYS: rows of a new generation, its ledgers, and its number of rows. ARGV: of each row, the state and document (empty:
# the row is deleted). A row that is written again is not counted again: HSET returns the number of fields that are new.
# Who builds a generation may outlive it, and then writes nothing.
WRITE_NEW_ROWS: Final = f"""
if #redis.call('HGETALL', KEYS[#KEYS - 1]) == 0 then return {GONE} end
local written = 0
for number = 1, #KEYS - 2 do
    local row, state, document = KEYS[number], ARGV[2 * number - 1], ARGV[2 * number]
    if redis.call('HSET', row, 'guard', '', 'state', state) > 0 then written = written + 1 end
    if document ~= '' then redis.call('HSET', row, 'doc', document) end
end
return redis.call('INCRBY', KEYS[#KEYS], written)
"""

CONNECTED: Final = ("client|setinfo", "client|setname", "echo", "ping", "select")
"""Commands of the client itself."""
READS: Final = ("eval_ro", "evalsha_ro", "hget", "hgetall", "sismember", "zcard", "zcount", "zrange")
"""Of the API. `…_ro` runs scripts that write nothing."""
WRITES: Final = (
    "del", "evalsha", "get", "hdel", "hget", "hgetall", "hmget", "hset", "incrby", "info", "sadd", "scan",
    "script|load", "set", "unlink", "zadd", "zrem", "zscan", "zscore",
)  # fmt: skip
"""Of who writes rows and compares them. `info` has the server's eviction policy, which must not delete rows."""


@dataclass(frozen=True)
class ValkeyWriter:
    """Writes the rows of one Spark partition; a repeated task writes the same hashes and members again."""

    url: str
    target: tuple[str, int]
    prefix: str
    ledgers: str
    counter: str
    """The keys of the ledgers, and of the number of rows."""
    form: DocumentForm
    rankings: Rankings

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        written = 0
        client = connect(self.url)
        with translated(), client:
            digest = client.script_load(WRITE_NEW_ROWS)
            for chunk in self.form.chunks(rows):
                with client.pipeline(transaction=False) as pipeline:
                    with loadable(NAME):
                        for keys, texts in self._calls(chunk):
                            own = *keys, self.ledgers, self.counter
                            pipeline.execute_command("EVALSHA", digest, len(own), *own, *texts)
                        places = self._places(chunk)
                    if GONE in pipeline.execute():
                        raise GenerationMissing(*self.target)
                    for name, members in places.items():
                        pipeline.zadd(name, members)
                    pipeline.execute()
                written += len(chunk)
        return written

    def _calls(self, rows: Sequence[tuple[str, State]]) -> Iterator[tuple[list[str], list[bytes]]]:
        """The keys and arguments of each run of WRITE_NEW_ROWS."""
        keys: list[str] = []
        texts: list[bytes] = []
        size = 0
        for key, state in rows:
            row = orjson.dumps(state), document(self.form, key, state)
            keys.append(self.prefix + key)
            texts += row
            size += len(row[0]) + len(row[1])
            if len(keys) == SCRIPT_ROWS or size > SCRIPT_BYTES:
                yield keys, texts
                keys, texts, size = [], [], 0
        if keys:
            yield keys, texts

    def _places(self, rows: Sequence[tuple[str, State]]) -> dict[str, dict[bytes, float]]:
        """The scores of the rows' members, by sorted set."""
        places: dict[str, dict[bytes, float]] = {}
        for key, state in rows if self.rankings.ranked else ():
            for name, place in self.rankings.places(self.form, key, state).items():
                places.setdefault(name, {})[place.member] = place.score
        return places


def document(form: DocumentForm, key: str, state: State) -> bytes:
    """What readers see of a row; empty if it is deleted."""
    return b"" if is_deleted(state) else orjson.dumps(form.show(key, state))


class ValkeyStore(ViewStore, RowStore[KnownLedgers]):
    """Views in one Valkey; for one thread.

    Rows are written first, their ledger afterwards: after a crash in between, patches are applied again, and the guard
    in each row skips them. The script that writes a row compares the ledger: nothing is written to rows of a server
    that was restarted meanwhile, before its ledger is read. The version of a row is the texts of its state and guard.

    fault: called with a name at each moment in `apply` at which a crash must do no harm; for tests.
    """

    name = "valkey"

    def __init__(self, settings: StoreSettings, fault: Callable[[str], None] = no_fault) -> None:
        self._settings, self._environment = settings, settings.environment
        self._client = connect(settings.valkey)
        self._policy_checked = -math.inf
        self._writer = Writer(self, NAME, fault)

    def create(self, target: Target, bulk_ends: Mapping[str, int], patch_starts: Mapping[int, int]) -> None:
        self._refuse_evictions([])
        self.drop(target)
        entries = {
            partition: ledger_to_json(ledgers.initial_ledger(bulk_ends, offset)).removesuffix(b"}") + INCOMPLETE
            for partition, offset in patch_starts.items()
        }
        ranked = Rankings.of(self._environment, target.view, target.generation).ranked
        with translated():
            if ranked:
                self._client.sadd(self._rankings_key(target), *(ranking.name for ranking in ranked))
            self._client.hset(self._ledgers_key(target), mapping=entries)

    def bulk_writer(self, target: Target) -> BulkWriter:
        environment = self._environment
        prefix = cache_key(environment, *target.id, "")
        rankings = Rankings.of(environment, target.view, target.generation)
        counter = cache_bulk_rows(environment, *target.id)
        own = self._ledgers_key(target)
        return ValkeyWriter(
            self._settings.valkey, target.id, prefix, own, counter, DocumentForm.of(target.view), rankings
        )

    def finish(self, target: Target, at_least: int = 0) -> Collection[str]:
        """Rows are readable at once. What the server saves next, it saves after them."""
        counter = cache_bulk_rows(self._environment, *target.id)
        (is_complete,) = run(self._client, COMPLETE, [(2, self._ledgers_key(target), counter, at_least, INCOMPLETE)])
        if is_complete == GONE:
            raise GenerationMissing(*target.id)
        if is_complete != DONE:
            ledgers.check_rows(NAME, target, is_complete, at_least)
        return ()

    def publish(self, target: Target) -> None:
        with translated():
            self._client.set(cache_pointer(self._environment, target.view.name), target.generation)

    def shown(self, view: str) -> int | None:
        with translated():
            pointer = self._client.get(cache_pointer(self._environment, view))
        return None if pointer is None else int(pointer)

    def drop(self, target: Target) -> None:
        every = cache_generation(self._environment, *target.id)
        with translated():
            # the ledger first: from here on nothing writes rows, and without the other nothing reads rankings
            self._client.unlink(self._ledgers_key(target), self._rankings_key(target))
            pointer = cache_pointer(self._environment, target.view.name)
            if self._client.get(pointer) == str(target.generation).encode():
                self._client.unlink(pointer)
            stored_keys = self._client.scan_iter(match=every, count=BULK_ROWS)
            while keys := list(islice(stored_keys, BULK_ROWS)):
                self._client.unlink(*keys)

    def all_ledgers(self, targets: Sequence[Target]) -> list[dict[int, Ledger]]:
        self._refuse_evictions(targets)
        return [known.ledgers for known in looked_up(self._client, self._environment, targets)]

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self._refuse_evictions(targets)
        self._writer.apply(targets, batches)

    def known(
        self, targets: Sequence[Target], partitions: Collection[int], first: FirstKeys | None = None
    ) -> Sequence[KnownLedgers]:
        return looked_up(self._client, self._environment, targets)

    def read_rows(self, target: Target, keys: Sequence[str], known: KnownLedgers) -> dict[str, ReadRow]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(cache_key(self._environment, *target.id, key), ["state", "guard"])
            replies = pipeline.execute()
        return {
            key: ReadRow(orjson.loads(state), places_from_json(orjson.loads(guard) if guard else None), (state, guard))
            if state
            else ReadRow({}, {})
            for key, (state, guard) in zip(keys, replies, strict=True)
        }

    def encoded(
        self, target: Target, rows: Mapping[str, ReadRow], partitions: Mapping[str, int], known: KnownLedgers
    ) -> Encoded:
        form, calls, size = DocumentForm.of(target.view), list[tuple[Any, ...]](), 0
        rankings = Rankings.of(self._environment, target.view, target.generation)
        for key, row in rows.items():
            state_json, guard_json = row.held or (None, None)
            values = b"", b"", b""
            if row.change != "removed":
                guard, state = orjson.dumps(places_to_json(row.guard)), orjson.dumps(row.state)
                values = guard, state, document(form, key, row.state)
            keys = [cache_key(self._environment, *target.id, key), cache_ledger(self._environment, *target.id)]
            changes = list[Any]()
            if rankings.ranked or row.change != "patched":
                changes.append(state_json or b"")
                old = rankings.places(form, key, orjson.loads(state_json)) if state_json else {}
                new: Mapping[str, ScoredMember] = {}
                if row.change != "removed":
                    new = rankings.places(form, key, row.state)
                for name, *place in changed_places(old, new):
                    keys.append(name)
                    changes += place
            at = partitions[key], known.digest(partitions[key])
            calls.append((len(keys), *keys, *at, guard_json or b"", *values, *changes))
            size += sum(map(len, values))
        return Encoded(calls, size)

    def write_if(self, target: Target, rows: Mapping[str, ReadRow], encoded: Encoded) -> Collection[str]:
        outcomes = run(self._client, WRITE_ROW, encoded.writes)
        if GONE in outcomes:
            raise GenerationMissing(*target.id)
        if CHANGED in outcomes:
            raise LedgerChanged
        return {key for key, outcome in zip(rows, outcomes, strict=True) if outcome == 0}

    def write_ledgers(self, advanced: Sequence[Advanced[KnownLedgers]]) -> Collection[Target]:
        places = [(write, partition) for write in advanced for partition in write.ledgers]
        calls = [
            (
                1,
                cache_ledger(self._environment, *target.id),
                partition,
                known.digest(partition),
                ledger_to_json(ledgers[partition]),
            )
            for (target, known, ledgers, _), partition in places
        ]
        changed: dict[tuple[str, int], Target] = {}
        for (advance, _), outcome in zip(places, run(self._client, WRITE_LEDGER, calls), strict=True):
            if outcome == GONE:
                raise GenerationMissing(*advance.target.id)
            if outcome == CHANGED:
                changed[advance.target.id] = advance.target
        return changed.values()

    def rows(self, target: Target) -> Rows:
        prefix = cache_key(self._environment, *target.id, "")
        with translated():
            names = self._client.scan_iter(match=f"{prefix}*", count=CHUNK_ROWS)
            while chunk := list(islice(names, CHUNK_ROWS)):
                yield from self.rows_of(target, [name.decode().removeprefix(prefix) for name in chunk]).items()

    def rows_of(self, target: Target, keys: Sequence[str]) -> dict[str, State]:
        with translated(), self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(cache_key(self._environment, *target.id, key), "state")
            replies: list[bytes | None] = pipeline.execute()
        return {key: without_empty(orjson.loads(state)) for key, state in zip(keys, replies, strict=True) if state}

    def size(self, target: Target) -> Size:
        return Size(None, None)  # Valkey cannot count keys by prefix, and a scan reads the keys of every view

    def close(self) -> None:
        self._client.close()

    def _refuse_evictions(self, targets: Sequence[Target]) -> None:
        if time.monotonic() - self._policy_checked >= CHECK_S:
            refuse_evictions(self._client, [self._ledgers_key(target) for target in targets])
            self._policy_checked = time.monotonic()

    def _ledgers_key(self, target: Target) -> str:
        return cache_ledger(self._environment, *target.id)

    def _rankings_key(self, target: Target) -> str:
        return cache_rankings(self._environment, *target.id)


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
        allowed = " ".join(f"+{command}" for command in (*CONNECTED, *commands))
        name = account(settings.environment, program)
        lines.append(f"ACL SETUSER {name} resetkeys resetchannels nocommands {keys}{settings.environment}:* {allowed}")
    return "\n".join(lines) + "\n"


_ROWS: Final = partial(StoredRows, ValkeyStore, NAME)
BACKEND: Final = Backend(
    ValkeyStore,
    _ROWS,
    _rankings,
    grants=grants,
    single_rows=_ROWS,
)
