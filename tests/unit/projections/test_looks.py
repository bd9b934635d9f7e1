"""What is looked at again and again: an error stops no other look."""

from __future__ import annotations

import logging
import threading

import pytest

from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.generations.upkeep import view_metrics
from headwater.projections.generations.upkeep.view_metrics import FAILED, look_until


def test_an_error_stops_no_other_look_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_metrics, "SAMPLE_S", 0.0)
    FAILED.clear()
    stop, looked = threading.Event(), list[int]()

    def away() -> None:
        raise LogUnavailable("reading", "a test")

    def broken() -> None:
        raise KeyError("a bug")

    def works() -> None:
        looked.append(1)
        if len(looked) == 3:
            stop.set()

    with caplog.at_level(logging.WARNING):
        look_until(stop, {"letters": away, "rebuilds": broken, "views": works})
    assert len(looked) == 3
    assert [record.message.partition(":")[0] for record in caplog.records[:2]] == [
        "cannot measure letters",
        "cannot measure rebuilds",
    ]
    name, whats = "headwater_looks_failed_total", ("letters", "rebuilds", "views")
    failed = {what: REGISTRY.get_sample_value(name, {"what": what}) for what in whats}
    assert failed == {"letters": 3, "rebuilds": 3, "views": 0}
    assert caplog.records[0].exc_info is None and caplog.records[1].exc_info is not None
