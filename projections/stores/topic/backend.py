"""How processes use this store."""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.topic.rows import TopicRows
from headwater.projections.stores.topic.store import TopicStore

BACKEND: Final = Backend(TopicStore, TopicRows)
