"""The roles of Elasticsearch: which indexes each program may use."""

from __future__ import annotations

import json
from typing import Final

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings

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
