"""The stores that a view can declare: a folder here has all that is particular to one.

A new store is added to the imports and to `STORES`, and its word to `headwater`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headwater.projections.stores.elasticsearch.declared import Elasticsearch
from headwater.projections.stores.postgres.declared import Postgres
from headwater.projections.stores.topic.declared import Topic
from headwater.projections.stores.valkey.declared import Cache
from headwater.projections.stores.valkey.ranking import Ranking
from headwater.projections.table.declared_store import DeclaredStore

__all__ = ["STORES", "Cache", "Elasticsearch", "Postgres", "Ranking", "Topic"]

STORES: Final[Mapping[str, type[DeclaredStore]]] = MappingProxyType(
    {each.name: each for each in (Postgres, Elasticsearch, Cache, Topic)}
)
"""By name."""
