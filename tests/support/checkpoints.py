"""Checkpoints of stream views as Spark leaves them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headwater.projections.spark.stream_queries.checkpoint import Checkpoint


def disk(checkpoint: Checkpoint) -> Path:
    """The folder of a checkpoint that is on a disk."""
    assert isinstance(checkpoint.folder, Path)
    return checkpoint.folder


def end_batch(checkpoint: Checkpoint, batch: int, *stores: str) -> None:
    """The end of a batch, with the changes of these stores of its state, such as `0/1`."""
    (checkpoint.folder / "commits").mkdir(exist_ok=True)
    (checkpoint.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for store in stores:
        folder = checkpoint.folder / "state" / store
        (folder / "_metadata").mkdir(parents=True, exist_ok=True)
        (folder / "_metadata" / "schema").write_text("v3")
        (folder / f"{batch + 1}.changelog").write_text("v2 changes")


def begin_batch(checkpoint: Checkpoint, batch: int, observations: Mapping[str, int]) -> None:
    """A batch that has begun, and reads up to these offsets of `observations`, by partition."""
    if not checkpoint.exists:
        checkpoint.create()
    (checkpoint.folder / "offsets").mkdir(exist_ok=True)
    (checkpoint.folder / "metadata").write_text('{"id":"f14a99d7-2127-4845-ae6c-77294ac7724c"}')
    lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"headwater.observations": dict(observations)})]
    (checkpoint.folder / "offsets" / str(batch)).write_text("\n".join(lines))
