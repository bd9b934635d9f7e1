"""A command on a line of NDJSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from headwater.api.openapi.components import VISIBLE

Visible = Annotated[str, Field(pattern=VISIBLE["pattern"])]


class CommandLine(BaseModel):
    """One command per line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: str
    body: dict[str, Any]
    id: Visible | None = Field(
        None, description="the command id, unique per stream, like Idempotency-Key; generated if missing"
    )
    expected_version: Annotated[int, Field(ge=0, lt=10**18)] | None = Field(
        None, description="the stream's expected version; 0: it must not exist"
    )
    correlation_id: Visible | None = None
    causation_id: Visible | None = None
    traceparent: str | None = None
