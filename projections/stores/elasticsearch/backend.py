"""How processes use this store."""

from __future__ import annotations

import json
from functools import partial
from typing import Final

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.elasticsearch.answers import NAME
from headwater.projections.stores.elasticsearch.clear_rows import ElasticsearchClearRows
from headwater.projections.stores.elasticsearch.rows import ElasticsearchRows, find_expired
from headwater.projections.stores.elasticsearch.store import ElasticsearchStore
from headwater.projections.stores.writer import StoredRows

READS: Final = ("maintenance", "read", "view_index_metadata")
"""`maintenance`: a refresh, for a request that waits for its own write."""
WRITES: Final = ("manage", "read", "write")
"""`manage`: makes, drops, and refreshes indexes, and moves their aliases."""


def grants(settings: StoreSettings) -> str:
    """The roles, as requests in the form of Kibana's console: a line with the path, and one with the body."""
    privileges = {Program.PROJECTIONS: WRITES, Program.OPERATOR: WRITES, Program.API: READS}
    requests = []
    for program, allowed in privileges.items():
        body = {"indices": [{"names": [f"{settings.environment}.*"], "privileges": list(allowed)}]}
        requests.append(f"PUT _security/role/{account(settings.environment, program)}\n{json.dumps(body)}\n")
    return "\n".join(requests)


_ROWS: Final = partial(StoredRows, ElasticsearchRows, NAME)
BACKEND: Final = Backend(
    ElasticsearchStore,
    _ROWS,
    grants=grants,
    single_rows=_ROWS,
    find_expired=find_expired,
    clear_rows=ElasticsearchClearRows,
)
