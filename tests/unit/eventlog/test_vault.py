"""Sealing, opening and forgetting, with keys in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from headwater.eventlog.errors import KeysUnavailable, SettingError, UnknownKey
from headwater.eventlog.personal.installed import install_when_needed, installed, is_installed
from headwater.eventlog.personal.master_keys import MasterKeys, new_master_key
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.ports import PersonKey
from headwater.eventlog.personal.sealed_text import SealedText, is_sealed
from headwater.eventlog.personal.vault import ERASED, LEASE_S, Vault


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def vault(keys: MemoryKeys | None = None, max_keys: int = 100) -> tuple[Vault, MemoryKeys, Clock]:
    keys, clock = keys or MemoryKeys(), Clock()
    return Vault(keys, max_keys, clock), keys, clock


@pytest.mark.parametrize("value", ["a@b.org", "", 12, 1.5, True, ["a", 1], {"street": "x"}, "sealed:1:a:b:c:d"])
def test_a_value_comes_back_as_it_was(value: object) -> None:
    safe, _, _ = vault()
    text = safe.seal("person-1", "customer.registered", "email", value)
    assert is_sealed(text)
    assert safe.open(text) == value
    assert "person-1" not in text


def test_the_text_says_its_version_and_key_and_the_same_value_has_the_same_text() -> None:
    safe, keys, _ = vault()
    text = safe.seal("P1", "customer.registered", "email", "a@b.org")
    assert text == safe.seal("P1", "customer.registered", "email", "a@b.org")
    assert SealedText.parse(text).key_id == keys.key_of("P1").key_id
    assert text.startswith("sealed:1:")
    others = [
        ("P2", "customer.registered", "email"),
        ("P1", "customer.moved", "email"),
        ("P1", "customer.registered", "mail"),
    ]
    assert len({text[-30:], *(safe.seal(*place, "a@b.org")[-30:] for place in others)}) == 4


def test_a_text_that_was_changed_or_moved_is_not_opened() -> None:
    safe, _, _ = vault()
    text = safe.seal("P1", "customer.registered", "email", "a@b.org")
    other = safe.seal("P2", "customer.registered", "email", "c@d.org")
    key, foreign = SealedText.parse(text), SealedText.parse(other)
    for changed in (
        key._replace(field="name"),
        key._replace(record_type="customer.moved"),
        key._replace(key_id=foreign.key_id),
        key._replace(sealed=key.sealed[:-1] + bytes([key.sealed[-1] ^ 1])),
        key._replace(sealed=b"short"),
    ):
        with pytest.raises(ValueError, match="was changed"):
            safe.open(str(changed))
    for damaged in ("sealed:2:a:b:c:d", "sealed:1:a", text[:-3] + "é"):
        with pytest.raises(ValueError, match=r"damaged|later|changed"):
            safe.open(damaged)


def test_an_erased_person_is_forgotten_at_the_next_look_and_gets_a_new_key() -> None:
    safe, keys, clock = vault()
    text, other = safe.seal("P1", "t", "f", "a@b.org"), safe.seal("P2", "t", "f", "c@d.org")
    keys.erase("P1")
    assert safe.open(text) == "a@b.org"
    before = safe.erasures
    clock.now += LEASE_S
    assert safe.open(text) is ERASED
    assert safe.erasures == before + 1
    assert safe.open(other) == "c@d.org"
    assert safe.is_erased("P1")
    later = safe.seal("P1", "t", "f", "new@b.org")
    assert safe.open(later) == "new@b.org"
    assert safe.open(text) is ERASED
    assert not safe.is_erased("P1")
    assert not safe.is_erased("P3")


def test_a_vault_that_is_new_knows_what_was_erased() -> None:
    safe, keys, _ = vault()
    text = safe.seal("P1", "t", "f", "a@b.org")
    keys.erase("P1")
    assert vault(keys)[0].open(text) is ERASED


def test_without_the_store_cached_keys_are_used_for_the_lease_only() -> None:
    safe, keys, clock = vault()
    text = safe.seal("P1", "t", "f", "a@b.org")
    keys.is_away = True
    assert safe.open(text) == "a@b.org"
    clock.now += LEASE_S
    for call in (lambda: safe.open(text), lambda: safe.seal("P1", "t", "f", "x"), lambda: safe.is_erased("P1")):
        with pytest.raises(KeysUnavailable, match="try again later"):
            call()
    assert not safe._sealers
    keys.is_away = False
    assert safe.open(text) == "a@b.org"


def test_a_key_that_the_store_never_had_is_no_erased_one() -> None:
    text = vault()[0].seal("P1", "t", "f", "a@b.org")
    with pytest.raises(UnknownKey, match="HEADWATER_KEYS"):
        vault()[0].open(text)


def test_a_store_that_was_restored_from_a_backup_empties_the_cache() -> None:
    safe, keys, clock = vault()
    keys.erase(keys.key_of("P0").person)
    text = safe.seal("P1", "t", "f", "a@b.org")
    keys._erased.clear()
    clock.now += LEASE_S
    assert safe.open(text) == "a@b.org"
    assert safe._number == 0


def test_the_cache_is_bounded() -> None:
    safe, _, _ = vault(max_keys=3)
    texts = {number: safe.seal(f"P{number}", "t", "f", number) for number in range(10)}
    assert len(safe._sealers) == len(safe._by_person) == 3
    assert [safe.open(text) for text in texts.values()] == list(range(10))


def test_keys_of_a_page_are_fetched_at_once() -> None:
    first, keys, _ = vault()
    texts = [first.seal(f"P{number}", "t", "f", number) for number in range(20)]
    safe, asked = Vault(keys), list[int]()
    find = keys.find

    def counted(key_ids: Collection[str]) -> Mapping[str, PersonKey | None]:
        asked.append(len(key_ids))
        return find(key_ids)

    keys.find = counted  # type: ignore[method-assign]
    safe.fetch([*texts, "sealed:damaged"])
    assert [safe.open(text) for text in texts] == list(range(20))
    assert asked == [20]


def test_master_keys_unwrap_what_they_wrapped_and_nothing_else() -> None:
    old, new = new_master_key(), new_master_key()
    before = MasterKeys.from_environment({"HEADWATER_MASTER_KEY": old})
    both = MasterKeys.from_environment({"HEADWATER_MASTER_KEY": f"{new}\n{old}\n"})
    wrapped = before.wrap("k1", "P1", b"s" * 64)
    assert both.unwrap(before.current, "k1", "P1", wrapped) == b"s" * 64
    assert both.current != before.current
    for master, key_id, person in (
        (before.current, "k2", "P1"),
        (before.current, "k1", "P2"),
        (both.current, "k1", "P1"),
    ):
        with pytest.raises(KeysUnavailable):
            both.unwrap(master, key_id, person, wrapped)
    with pytest.raises(KeysUnavailable, match=both.current):
        before.unwrap(both.current, "k1", "P1", wrapped)


@pytest.mark.parametrize("value", ["", "short", "x" * 44])
def test_a_master_key_that_is_none_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(SettingError, match="HEADWATER_MASTER_KEY") as refused:
        MasterKeys.from_environment({"HEADWATER_MASTER_KEY": value})
    assert not value or value not in str(refused.value)


class Opening:
    """How a program opens its vault."""

    def __init__(self) -> None:
        self.vault = Vault(MemoryKeys())

    def __call__(self) -> Vault:
        return self.vault


def test_what_a_program_opens_when_needed_is_closed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next program of this process would use its keys, or ask for them."""
    for name, empty in {"_installed": list[Vault](), "_opening": list[Opening](), "_opened": {}}.items():
        monkeypatch.setattr(f"headwater.eventlog.personal.installed.{name}", empty)
    outer, inner = Opening(), Opening()
    undo = install_when_needed(outer)
    install_when_needed(inner)()
    assert installed() is outer.vault
    undo()
    assert not is_installed()
    install_when_needed(inner)
    assert installed() is inner.vault


def test_after_a_store_has_hung_others_are_told_at_once_for_a_moment() -> None:
    safe, keys, clock = vault()
    asked = 0

    def hangs(person: str) -> PersonKey:
        nonlocal asked
        asked, clock.now = asked + 1, clock.now + 3
        raise KeysUnavailable("no connection")

    keys.key_of, answers = hangs, keys.key_of  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(KeysUnavailable, match="no connection"):
            safe.seal("P1", "customer.registered", "email", "a")
    assert asked == 1
    keys.key_of = answers  # type: ignore[method-assign]
    clock.now += LEASE_S
    assert safe.seal("P1", "customer.registered", "email", "a")


def test_a_store_that_refuses_one_key_is_asked_for_the_others() -> None:
    safe, keys, _ = vault()
    text = safe.seal("P1", "customer.registered", "email", "a")
    other = Vault(keys)

    def refuses(key_ids: Collection[str]) -> Mapping[str, PersonKey | None]:
        raise KeysUnavailable("it was changed in its store")

    keys.find = refuses  # type: ignore[method-assign]
    with pytest.raises(KeysUnavailable):
        other.open(text)
    assert other.seal("P1", "customer.registered", "email", "a") == text
    other.close()


def test_what_can_be_sealed_without_asking_is_known_without_waiting() -> None:
    safe, _, clock = vault()
    assert not safe.can_seal(["P1"])
    safe.seal("P1", "customer.registered", "email", "a")
    assert safe.can_seal(["P1"])
    assert not safe.can_seal(["P1", "P2"])
    clock.now += LEASE_S
    assert not safe.can_seal(["P1"])


def test_what_was_reported_before_an_erasure_is_sealed_with_nothing_and_what_came_later_is() -> None:
    safe, keys, clock = vault()
    name = ("P1", "visited", "name", "canary")
    long_ago, later = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    first = safe.seal(*name, since=long_ago)
    assert safe.open(first) == "canary"
    (erased,) = keys.erase("P1")
    clock.now += LEASE_S
    left = safe.seal(*name, since=long_ago)
    assert (left, len(keys.keys_of("P1"))) == (f"sealed:1:{erased.key_id}:visited:name:", 1)
    assert safe.open(left) is ERASED
    assert SealedText.parse(left).sealed == b""
    again = safe.seal(*name, since=later)
    assert safe.open(again) == "canary"
    assert safe.seal(*name, since=long_ago) == left, "also if the person has come back"
    other = Vault(keys)
    other.fetch([again])
    assert other.seal(*name, since=long_ago) == left
    assert other.seal(*name) == again
    keys.erase("P1")
    clock.now += LEASE_S
    assert safe.open(safe.seal(*name, since=long_ago)) is ERASED
    assert len(keys.keys_of("P1")) == 2
    other.close()


def test_many_values_from_before_an_erasure_ask_the_store_once() -> None:
    safe, keys, clock = vault()
    name, long_ago = ("P1", "visited", "name", "canary"), datetime.now(UTC) - timedelta(days=1)
    safe.seal(*name)
    keys.erase("P1")
    clock.now += LEASE_S
    asked, ask = list[str](), keys.key_unless_erased
    keys.key_unless_erased = lambda person: asked.append(person) or ask(person)  # type: ignore[method-assign, func-returns-value]
    assert len({safe.seal(*name, since=long_ago) for _ in range(100)}) == 1
    assert asked == ["P1"]
    assert safe.open(safe.seal(*name, since=datetime.now(UTC) + timedelta(days=1))) == "canary"
    assert safe.open(safe.seal(*name, since=long_ago)) is ERASED
    assert safe.open(safe.seal(*name)) == "canary"
