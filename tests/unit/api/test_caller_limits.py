"""What one caller may ask of a process, and that nobody else is refused for it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.errors import TooManyRequests
from headwater.api.guard import guard
from headwater.api.guard.guard import CallerLimits, Guard
from headwater.api.guard.tokens import Roles, Tokens
from headwater.api.settings import GuardSettings
from headwater.eventlog.errors import SettingError
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, token
from tests.unit.api.test_guard_tokens import Known


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def client(given: CallerLimits) -> AppClient:
    guard = Guard(None, Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles")), limits=given)
    return AppClient(create_app(replace(fake_service(), guard=guard)))


def statuses(client: AppClient, number: int, path: str = "/views", **claims: Any) -> list[int]:
    headers = bearer(token("views:*", **claims))
    return [client.get(path, headers=headers).status_code for _ in range(number)]


def test_a_caller_has_so_many_requests_per_second() -> None:
    clock = Clock()
    api = client(CallerLimits(3, clock=clock))
    assert statuses(api, 5) == [200, 200, 200, 429, 429]
    assert statuses(api, 1, sub="another") == [200]
    refused = api.get("/views", headers=bearer(token("views:*")))
    assert (refused.headers["retry-after"], refused.json()["type"]) == ("1", "urn:headwater:problem:too_many_requests")
    assert refused.json()["limit"] == 3
    clock.now_s += 1 / 3 + 0.001
    assert statuses(api, 2) == [200, 429]
    clock.now_s += 3600  # it saves up no more than a second
    assert statuses(api, 5) == [200, 200, 200, 429, 429]


def test_whatever_is_sent_counts_also_what_is_forbidden_or_missing() -> None:
    api = client(CallerLimits(2, clock=Clock()))
    assert statuses(api, 3, "/streams/listing/L1") == [403, 403, 429]
    assert statuses(api, 3, "/nothing", sub="b") == [404, 404, 429]


def test_requests_without_a_caller_use_up_nobodys_limit_and_health_has_none() -> None:
    api = client(CallerLimits(1, 1, clock=Clock()))
    for _ in range(5):
        assert api.get("/views").status_code == 401
        assert api.get("/views", headers=bearer(token("views:*", aud="x"))).status_code == 401
        assert api.get("/health/live").status_code == 200
    assert statuses(api, 2) == [200, 429]


def test_requests_at_once() -> None:
    given = CallerLimits(at_once=2)
    with given.admitted("a"):
        with given.admitted("a"):
            with pytest.raises(TooManyRequests), given.admitted("a"):
                pass
            with given.admitted("b"):
                pass
        with given.admitted("a"):
            pass
    with pytest.raises(ZeroDivisionError), given.admitted("a"):
        raise ZeroDivisionError
    with given.admitted("a"), given.admitted("a"):
        pass


def test_a_request_that_was_answered_has_ended() -> None:
    api = client(CallerLimits(at_once=1))
    assert statuses(api, 3) == [200, 200, 200]
    assert statuses(api, 2, "/views/nothing") == [404, 404]


def test_callers_are_forgotten_but_not_what_they_have_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REMEMBERED", 3)
    clock = Clock()
    given = CallerLimits(1, 1, clock)
    with ExitStack() as running:
        running.enter_context(given.admitted("follower"))
        for number in range(50):
            clock.now_s += 2
            with given.admitted(f"c{number}"):
                pass
        assert len(given._used) <= 4
        with pytest.raises(TooManyRequests), given.admitted("follower"):
            pass
    for number in range(10):
        with given.admitted(f"d{number}"):
            pass
        with pytest.raises(TooManyRequests), given.admitted(f"d{number}"):
            pass
    with pytest.raises(TooManyRequests), given.admitted("d0"):
        pass


@pytest.mark.parametrize("name", ["PER_SECOND", "AT_ONCE"])
def test_a_limit_without_known_callers_and_a_wrong_one_are_named(name: str) -> None:
    variable = f"HEADWATER_API_CALLER_{name}"
    with pytest.raises(SettingError, match=rf"{variable}.*HEADWATER_API_KEYS"):
        GuardSettings.from_environment({variable: "5"})
    for wrong in ("-1", "x", "1.5", "1000001"):
        with pytest.raises(SettingError, match=variable):
            GuardSettings.from_environment({variable: wrong, "HEADWATER_API_KEYS": "keys.json"})
    assert GuardSettings.from_environment({variable: "0"}).caller_at_once == 0
