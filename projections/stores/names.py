"""The names of a view's generations in each store, also for readers of the stores."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from headwater.eventlog.envelope import partition_of

if TYPE_CHECKING:
    from headwater.projections.view import View

NUL: Final = "\0"
REPLACEMENT: Final = "\ufffd"
"""PostgreSQL's replacement for NUL, which its text cannot contain."""
LEDGER = "ledger"
MAX_ID_BYTES = 512
HASHED = "sha256:"


def table_name(view: str, generation: int) -> str:
    """PostgreSQL table of a generation, within the environment's schema."""
    return f"{view}__g{generation}"


def table_key(key: str) -> str:
    """PostgreSQL's key of a row."""
    return key.replace(NUL, REPLACEMENT)


def index_name(environment: str, view: str, generation: int) -> str:
    """Elasticsearch index of a generation."""
    return f"{environment}.{view}.g{generation}"


def alias_name(environment: str, view: str) -> str:
    """Elasticsearch alias of a view."""
    return f"{environment}.{view}"


def write_alias(index: str) -> str:
    """Elasticsearch alias for writing to an index: a write to a missing alias creates nothing."""
    return f"{index}.write"


def document_id(key: str) -> str:
    """Elasticsearch's `_id` of a row: its key, or a hash of it if the key is empty or too long."""
    if key and len(key.encode()) <= MAX_ID_BYTES and not key.startswith(HASHED):
        return key
    return HASHED + hashlib.sha256(key.encode()).hexdigest()


def ledger_index(environment: str) -> str:
    """Elasticsearch index of the ledgers of all generations."""
    return f"{environment}.{LEDGER}"


def ledger_document(view: str, generation: int, partition: int) -> str:
    """Elasticsearch's `_id` of one ledger."""
    return f"{view}.g{generation}.{partition}"


def cache_ledger(environment: str, view: str, generation: int) -> str:
    """Valkey key of a generation's ledgers: a hash with a field per partition of `patches`."""
    return f"{environment}:{LEDGER}:{view}:g{generation}"


def cache_key(environment: str, view: str, generation: int, key: str) -> str:
    """Valkey key of a row: a hash with the fields `doc` (visible, JSON), `state` and `guard`."""
    return f"{environment}:{view}:g{generation}:{key}"


def cache_rankings(environment: str, view: str, generation: int) -> str:
    """Valkey key of a set with the declarations of the rankings that a generation has."""
    return f"{environment}:{view}:g{generation}.rankings"


def cache_bulk_rows(environment: str, view: str, generation: int) -> str:
    """Valkey key with the number of rows that bulk has written to a generation, until that is complete."""
    return f"{environment}:{view}:g{generation}.bulk"


def cache_ranking(environment: str, view: str, generation: int, ranking: str, group: str) -> str:
    """Valkey key of a sorted set. ranking: its declaration. group: the values of its `within` as JSON, or empty."""
    return f"{environment}:{view}:g{generation}.ranking:{ranking}" + (f":{group}" if group else "")


def cache_generation(environment: str, view: str, generation: int) -> str:
    """A pattern for the Valkey keys of the rows and rankings of a generation, and of no other."""
    return f"{environment}:{view}:g{generation}[:.]*"


def cache_pointer(environment: str, view: str) -> str:
    """Valkey key with the number of the live generation."""
    return f"{environment}:{view}:generation"


def patch_partition(view: View, tag: str, key: str, partitions: int) -> int:
    """The partition of `patches` with the patches of a row."""
    return partition_of(partition_text(view, tag, key), partitions)


def partition_text(view: View, tag: str, key: str) -> str:
    """The text whose CRC-32 gives the partition of a row's patches.

    It is one for all rows of a view whose contributions change common groups. Of a view in a store that keeps
    partitions it is without the tag, so that another version of the view has each row in the same one.
    """
    keeps, retracts = keeps_partitions(view), view.layout.retraction is not None
    if keeps:
        return view.name if retracts else key
    return patch_key(tag, "" if retracts else key)


def keeps_partitions(view: View) -> bool:
    """Whether all versions of a view must have a row in the same partition."""
    return any(store.keeps_partitions for store in view.stores)


def patch_key(tag: str, key: str) -> str:
    """Record key, in `patches`, of a row's patches; its CRC-32 gives the partition, see `patch_partition`."""
    return f"{tag}/{key}"
