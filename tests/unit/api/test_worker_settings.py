"""The address and the number of the API's workers, and how a worker ends."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from headwater.api.limits import Limits
from headwater.api.server import workers
from headwater.api.server.workers import listen
from headwater.api.settings import CANNOT_START, ApiSettings, ServerSettings
from headwater.eventlog.errors import SettingError

pytestmark = pytest.mark.programs


def at_port(port: int) -> ApiSettings:
    """The settings of an API; 0: at any port that is free, which no variable can say."""
    return ApiSettings(server=ServerSettings.model_construct(port=port))


def test_an_address_that_is_taken_is_named() -> None:
    with (
        listen(at_port(0)) as taken,
        pytest.raises(SettingError, match="HEADWATER_API_PORT"),
    ):
        listen(at_port(taken.getsockname()[1]))


def test_the_number_of_workers_is_a_setting() -> None:
    assert (
        ApiSettings.from_environment({"HEADWATER_API_WORKERS": "3", "HEADWATER_MODULES": "listings"}).server.workers
        == 3
    )
    assert ApiSettings.from_environment({"HEADWATER_MODULES": "listings"}).server.workers == 1
    with pytest.raises(SettingError, match="HEADWATER_API_WORKERS"):
        ApiSettings.from_environment({"HEADWATER_API_WORKERS": "0"})


def test_a_process_of_its_own_ends_with_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import headwater.api.server.serving

    monkeypatch.setattr(headwater.api.server.serving, "serve", lambda settings, listening: CANNOT_START)
    monkeypatch.setitem(os.environ, "HEADWATER_LOG_LEVEL", "INFO")
    with socket.socket() as listening, pytest.raises(SystemExit) as ended:
        workers.work(ApiSettings(), listening)
    assert ended.value.code == CANNOT_START


def test_a_single_process_names_the_port_that_is_taken_or_the_address_that_is_not_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import headwater.api.server.serving

    service = SimpleNamespace(feeds=SimpleNamespace(followers=0), gateway=SimpleNamespace(awaited=0), limits=Limits())
    monkeypatch.setattr(headwater.api.server.serving, "compose_service", lambda _: service)
    monkeypatch.setattr(headwater.api.server.serving, "create_app", lambda _: None)
    with listen(at_port(0)) as taken:
        assert headwater.api.server.serving.serve(at_port(taken.getsockname()[1])) == CANNOT_START
    assert 'the API cannot start: environment variable "HEADWATER_API_PORT" is "' in capsys.readouterr().err
    for host in ("192.0.2.1", "host.invalid", "x" * 300):
        assert headwater.api.server.serving.serve(ApiSettings(server=ServerSettings(host=host))) == CANNOT_START
        assert 'environment variable "HEADWATER_API_HOST" is "' in capsys.readouterr().err
