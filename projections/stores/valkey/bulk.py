"""The bulk path into Valkey, and the form of its documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from headwater.projections.stores.documents import DocumentForm, is_deleted
from headwater.projections.stores.ledgers import loadable
from headwater.projections.stores.valkey.client import NAME, connect, translated
from headwater.projections.stores.valkey.rankings import Rankings
from headwater.projections.table.monoids import State

if TYPE_CHECKING:
    import pyarrow as pa

SCRIPT_ROWS: Final = 250
"""Rows that one run of a script writes: the server answers nobody else meanwhile, about a millisecond."""
SCRIPT_BYTES: Final = 1024 * 1024
"""And the bytes of their states and documents, with those of the last row beyond it: rows may be large."""

# KEYS: rows of a new generation, and its number of rows. ARGV: of each row, the state and document (empty: the row is
# deleted). A row that is written again is not counted again: HSET returns the number of fields that are new.
WRITE_NEW_ROWS: Final = """
local written = 0
for number = 1, #KEYS - 1 do
    local row, state, document = KEYS[number], ARGV[2 * number - 1], ARGV[2 * number]
    if redis.call('HSET', row, 'guard', '', 'state', state) > 0 then written = written + 1 end
    if document ~= '' then redis.call('HSET', row, 'doc', document) end
end
redis.call('INCRBY', KEYS[#KEYS], written)
"""


@dataclass(frozen=True)
class ValkeyWriter:
    """Writes the rows of one Spark partition; a repeated task writes the same hashes and members again."""

    url: str
    prefix: str
    counter: str
    """The key with the number of rows."""
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
                            pipeline.execute_command("EVALSHA", digest, len(keys) + 1, *keys, self.counter, *texts)
                        for name, places in self._places(chunk).items():
                            pipeline.zadd(name, places)
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
        found: dict[str, dict[bytes, float]] = {}
        for key, state in rows if self.rankings.ranked else ():
            for name, place in self.rankings.places(self.form, key, state).items():
                found.setdefault(name, {})[place.member] = place.score
        return found


def document(form: DocumentForm, key: str, state: State) -> bytes:
    """What readers see of a row; empty if it is deleted."""
    return b"" if is_deleted(state) else orjson.dumps(form.show(key, state))
