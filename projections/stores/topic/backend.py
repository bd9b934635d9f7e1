"""How processes use this store."""

from __future__ import annotations

from typing import Final

from projections.stores.backend import Backend
from projections.stores.topic.rows import TopicRows
from projections.stores.topic.store import TopicStore

BACKEND: Final = Backend(TopicStore, TopicRows)
