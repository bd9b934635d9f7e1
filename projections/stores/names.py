"""What the generations of a view are called in each store; readers of the stores use these too."""

from __future__ import annotations

LEDGER = "ledger"


def table_name(view: str, generation: int) -> str:
    """PostgreSQL table of a generation, within the environment's schema."""
    return f"{view}__g{generation}"


def index_name(environment: str, view: str, generation: int) -> str:
    """Elasticsearch index of a generation."""
    return f"{environment}.{view}.g{generation}"


def alias_name(environment: str, view: str) -> str:
    """Elasticsearch alias of a view."""
    return f"{environment}.{view}"


def cache_key(environment: str, view: str, generation: int, key: str) -> str:
    """Valkey key of a row: a hash with the fields `doc` (visible, JSON), `state` and `guard`."""
    return f"{environment}:{view}:g{generation}:{key}"


def cache_pointer(environment: str, view: str) -> str:
    """Valkey key that holds the number of the live generation."""
    return f"{environment}:{view}:generation"


def patch_key(tag: str, key: str) -> str:
    """Record key, in `patches`, of a row's patches; its CRC-32 gives the partition."""
    return f"{tag}/{key}"
