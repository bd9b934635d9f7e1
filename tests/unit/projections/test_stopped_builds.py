"""A read side that is asked to stop while it builds views, which may take hours, ends at once."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.eventlog.programs.stopping import Stopping
from headwater.eventlog.settings import LogSettings
from headwater.projections.service import Service
from headwater.projections.supervise import supervise


@pytest.fixture
def stop() -> Iterator[Stopping]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Stopping.by_signals()
    for number, handler in before.items():
        signal.signal(number, handler)


class Building:
    """A service whose views take for ever, until somebody sends SIGTERM."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.generations = SimpleNamespace(prepare=lambda: None)
        self.cleaned = False

    def prepare(self) -> None: ...

    def servable(self) -> Building:
        return self

    def build_missing(self, **_: Any) -> list[Any]:
        try:
            signal.raise_signal(signal.SIGTERM)
            raise AssertionError("the build goes on")
        finally:
            self.cleaned = True


def test_the_first_build_is_broken_off(
    stop: Stopping, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_METRICS_PORT", raising=False)
    service = Building(LogSettings(state=tmp_path, modules=("listings",)))
    with caplog.at_level(logging.INFO):
        supervise(cast(Service, service), stop)  # returns: no part was started
    assert service.cleaned
    assert "stopped while views were built" in caplog.text
