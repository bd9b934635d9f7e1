"""Checkpoints of stream views as Spark leaves them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping

from projections.spark.streams.checkpoint import Checkpoint


def begin_batch(checkpoint: Checkpoint, batch: int, observations: Mapping[str, int]) -> None:
    """A batch that has begun, and reads up to these offsets of `observations`, by partition."""
    if not checkpoint.exists:
        checkpoint.create()
    (checkpoint.folder / "offsets").mkdir(exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"headwater.observations": dict(observations)})]
    (checkpoint.folder / "offsets" / str(batch)).write_text("\n".join(lines))
