"""A command on a line of NDJSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.components import VISIBLE

Visible = Annotated[str, Field(pattern=VISIBLE["pattern"])]


class CommandLine(BaseModel):
    """A command on a line of its own."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: str
    body: dict[str, Any]
    id: Visible | None = Field(None, description="as Idempotency-Key; one is made where there is none")
    expected_version: Annotated[int, Field(ge=0, lt=10**18)] | None = Field(None, description="0: it must not exist")
    correlation_id: Visible | None = None
    causation_id: Visible | None = None
    traceparent: str | None = None
