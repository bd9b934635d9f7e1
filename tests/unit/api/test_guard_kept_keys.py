"""The keys of an issuer on disk: an API that starts while the issuer is down still knows its callers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from headwater.api.errors import IssuerUnavailable
from headwater.api.guard.jwks import open_keys
from headwater.api.guard.kept_keys import MAX_KEPT_S, KeptKeys
from headwater.api.guard.roles import Roles
from headwater.api.guard.tokens import Tokens
from headwater.eventlog.errors import SettingError
from tests.unit.api.issuing import AUDIENCE, ISSUER, answering, jwks, token


def accepted(url: str, folder: Path, text: str) -> str | None:
    """Whose token it is for an API that starts now. url: of the issuer's keys."""
    of = Tokens(ISSUER, AUDIENCE, open_keys(ISSUER, url, folder), Roles(None, "roles"))

    async def found() -> str | None:
        caller = await of.caller(text)
        of.close()
        return caller.name

    return asyncio.run(found())


def once_fetched(folder: Path) -> str:
    """The URL of an issuer that was reached, and is down now."""
    with answering() as (url, answers):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        assert accepted(f"{url}/keys", folder, token()) == "user-1"
    return f"{url}/keys"


def test_an_api_that_starts_while_the_issuer_is_down_accepts_valid_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = once_fetched(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert accepted(url, tmp_path, token()) == "user-1"
    assert "as they were kept on disk are valid until it does" in caplog.text
    with pytest.raises(IssuerUnavailable):
        accepted(url, tmp_path / "another", token())


def test_an_issuer_that_answers_with_an_error_of_its_own_counts_as_down(tmp_path: Path) -> None:
    with answering() as (url, answers):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        accepted(f"{url}/keys", tmp_path, token())
        answers.by_path["/keys"] = (503, {})
        assert accepted(f"{url}/keys", tmp_path, token()) == "user-1"


def test_keys_on_disk_are_not_used_once_the_issuer_answers(tmp_path: Path) -> None:
    with answering() as (url, answers):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        accepted(f"{url}/keys", tmp_path, token())
        answers.by_path["/keys"] = (200, jwks("ed-2"))
        with pytest.raises(Exception, match="does not have"):
            accepted(f"{url}/keys", tmp_path, token())
        answers.by_path["/keys"] = (503, {})
        with pytest.raises(Exception, match="does not have"):  # what was withdrawn is not on disk any more either
            accepted(f"{url}/keys", tmp_path, token())


def test_an_issuer_that_answers_wrongly_is_named_at_the_start_although_keys_are_on_disk(tmp_path: Path) -> None:
    with answering() as (url, answers):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        accepted(f"{url}/keys", tmp_path, token())
        answers.by_path["/keys"] = (200, {"keys": []})
        with pytest.raises(SettingError, match="HEADWATER_API_JWKS"):
            open_keys(ISSUER, f"{url}/keys", tmp_path)


def test_another_issuer_or_url_has_no_part_in_it(tmp_path: Path) -> None:
    url = once_fetched(tmp_path)
    assert KeptKeys(tmp_path, ISSUER, url).read() is not None
    assert KeptKeys(tmp_path, ISSUER, "").read() is None
    assert KeptKeys(tmp_path, "https://other.example.com/", url).read() is None
    other = KeptKeys(tmp_path, "https://other.example.com/", url)
    KeptKeys(tmp_path, ISSUER, url).path.rename(other.path)  # nor under another name
    assert other.read() is None


def test_the_file_is_for_its_owner_and_has_public_keys_for_signatures_only(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "issuer-keys"
    with answering() as (url, answers):
        document = jwks("ed-1")
        document["keys"] += [{"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}, {"kty": "RSA", "use": "enc"}]
        answers.by_path["/keys"] = (200, document)
        open_keys(ISSUER, f"{url}/keys", folder)
    (path,) = folder.iterdir()
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each["kid"] for each in json.loads(path.read_text())["document"]["keys"]] == ["ed-1"]


def others_may_write(path: Path) -> None:
    path.chmod(0o620)


def others_may_read(path: Path) -> None:
    path.chmod(0o604)


def is_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def is_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def is_a_list(path: Path) -> None:
    path.write_text("[1]")


def has_no_keys(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"document": {"keys": [{"kty": "oct"}]}}))


def has_no_time(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fetched_s": "now"}))


@pytest.mark.parametrize(
    "harm", [others_may_write, others_may_read, is_a_link, is_half, is_a_list, has_no_keys, has_no_time]
)
def test_a_file_that_cannot_be_trusted_or_read_is_not_used(tmp_path: Path, harm: object) -> None:
    url = once_fetched(tmp_path)
    assert callable(harm)
    harm(KeptKeys(tmp_path, ISSUER, url).path)
    with pytest.raises(IssuerUnavailable):
        accepted(url, tmp_path, token())


@pytest.mark.parametrize(("later_s", "is_used"), [(MAX_KEPT_S - 60, True), (MAX_KEPT_S + 60, False), (-60, True)])
def test_keys_that_were_fetched_too_long_ago_are_not_used(tmp_path: Path, later_s: float, is_used: bool) -> None:
    now_s = [1_000_000_000.0]
    kept = KeptKeys(tmp_path, ISSUER, "", lambda: now_s[0])
    kept.write(jwks("ed-1"))
    now_s[0] += later_s
    found = kept.read()
    assert (found is not None) is is_used
    assert found is None or found == (jwks("ed-1"), max(0.0, later_s))


def test_a_disk_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_the_way = tmp_path / "issuer-keys"
    in_the_way.write_text("a file")
    with answering() as (url, answers), caplog.at_level(logging.WARNING):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        assert accepted(f"{url}/keys", in_the_way, token()) == "user-1"
    assert "cannot keep the keys" in caplog.text


def test_several_processes_may_write_at_once_and_leave_nothing_behind(tmp_path: Path) -> None:
    documents = [jwks("ed-1"), jwks("ed-1", "ec-1")]
    kept = KeptKeys(tmp_path, ISSUER, "")

    def write(number: int) -> None:
        for _ in range(20):
            kept.write(documents[number])
            found = kept.read()
            assert found is not None
            assert found[0] in documents

    threads = [threading.Thread(target=write, args=[number]) for number in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert os.listdir(tmp_path) == [kept.path.name]  # noqa: PTH208


def test_the_issuer_is_asked_again_soon(tmp_path: Path) -> None:
    url = once_fetched(tmp_path)
    of = open_keys(ISSUER, url, tmp_path)

    async def asks() -> bool:
        of._began_s -= 11.0  # type: ignore[attr-defined]
        of.current()
        fetching = of._fetching  # type: ignore[attr-defined]
        of.close()
        return fetching is not None

    assert asyncio.run(asks())
