"""How processes use this store."""

from __future__ import annotations

from typing import Final

from headwater.projections.stores.backend import Backend
from headwater.projections.stores.topic.store import TopicRows, TopicStore

BACKEND: Final = Backend(TopicStore, TopicRows)
