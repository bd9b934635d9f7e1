"""The checkpoint of a generation that is gone is deleted, or a log line says that it could not be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint, forget

TAG = "hourly@1.g2"


def test_a_checkpoint_that_cannot_be_deleted_is_named_in_the_log_and_stays_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LogSettings(state=tmp_path)
    checkpoint = Checkpoint.of(settings, TAG)
    checkpoint.create()
    with checkpoint.held():
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        forget(settings, TAG)
    assert f"cannot delete the checkpoint of {TAG}: [Errno 13] Permission denied" in caplog.text
    assert checkpoint.exists and checkpoint.lock.exists(), "the next sweep tries again"
    forget(settings, TAG)
    assert not (checkpoint.exists or checkpoint.lock.exists())
