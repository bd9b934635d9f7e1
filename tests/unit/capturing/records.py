"""Records of a captured table, as Debezium writes them without schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def record(
    after: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    op: str = "u",
    lsn: int = 24023130,
    commit: int | None = 24023128,
    order: int = 1,
    **source: Any,
) -> bytes:
    """The value of a record, with all that Debezium 3.6 writes beside the row."""
    sequence = orjson.dumps([None if commit is None else str(commit), str(lsn)]).decode()
    return orjson.dumps(
        {
            "before": before,
            "after": after,
            "source": {
                "version": "3.6.1.Final",
                "connector": "postgresql",
                "name": "headwater.cdc.shop",
                "ts_ms": 1700000000123,
                "snapshot": "false",
                "db": "shop",
                "sequence": sequence,
                "ts_us": 1700000000123456,
                "ts_ns": 1700000000123456000,
                "schema": "public",
                "table": "things",
                "txId": 555,
                "lsn": lsn,
                "xmin": None,
                **source,
            },
            "transaction": {"id": f"555:{lsn}", "total_order": order, "data_collection_order": 1} if order else None,
            "op": op,
            "ts_ms": 1700000000456,
            "ts_us": 1700000000456789,
            "ts_ns": 1700000000456789000,
        }
    )
