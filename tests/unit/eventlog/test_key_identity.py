"""A deployment has one store of keys: another one, or an earlier state of it, is an outage, and never an erasure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from headwater.eventlog.erasing.person import RowsFound, brought_back, planned
from headwater.eventlog.errors import KeysUnavailable, UnknownKey
from headwater.eventlog.personal.master_keys import MasterKeys, new_master_key
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.ports import KeyStore, PersonKey
from headwater.eventlog.personal.vault import ERASED, LEASE_S, Vault
from headwater.projections.errors import KeysAway
from headwater.projections.stores.clear_columns import ClearColumns
from tests.support.key_records import Records
from tests.support.memory_vault import memory_vault


def sealed(keys: KeyStore, person: str) -> str:
    return Vault(keys).seal(person, "customer.registered", "email", f"{person}@example.org")


def copied(keys: MemoryKeys, records: Records) -> MemoryKeys:
    """A backup of the store, restored."""
    copy = MemoryKeys(records)
    copy.store_id = keys.store_id
    for name in ("_keys", "_erased"):
        getattr(copy, name).update(getattr(keys, name))
    copy._facts.update({person: list(facts) for person, facts in keys._facts.items()})
    return copy


def test_an_empty_database_in_place_of_the_store_makes_no_keys() -> None:
    records = Records()
    keys = MemoryKeys(records)
    keys.key_of("P9")
    wrong = MemoryKeys(records)
    for asked in (lambda: wrong.key_of("P9"), lambda: wrong.keys_of("P9"), lambda: wrong.erase("P9")):
        with pytest.raises(KeysUnavailable, match=f"has no keys.*{keys.store_id}.*HEADWATER_KEYS"):
            asked()
    assert wrong.store_id is None
    other = MemoryKeys()
    other.key_of("P9")
    other._identity, other._is_accepted = wrong._identity, False
    with pytest.raises(KeysUnavailable, match=f"has the store {other.store_id}"):
        other.key_of("P9")


class NoRows:
    """Stores without a row that shows values in plaintext."""

    def count(self, key_ids: Collection[str]) -> Sequence[RowsFound]:
        return ()

    empty = count


def test_a_dry_run_says_also_that_no_row_has_values_in_plaintext() -> None:
    keys = MemoryKeys()
    key = keys.key_of("P1")
    assert planned(keys, "P1", in_clear=NoRows()).summary == (
        f"keys would be destroyed: {key.key_id}; rows with plaintext values: none"
    )
    assert "rows" not in planned(keys, "P1").summary, "nobody has looked"


def test_of_two_stores_that_are_noted_at_once_the_first_counts() -> None:
    with pytest.raises(KeysUnavailable, match="notes the store 0a0b0c0d"):
        MemoryKeys(Records(meanwhile="0a0b0c0d")).key_of("P1")


def test_a_key_that_is_missing_is_an_outage_unless_the_log_says_that_it_was_destroyed() -> None:
    records = Records()
    keys = MemoryKeys(records)
    keys.key_of("P0")
    backup = copied(keys, records)
    lost, erased = sealed(keys, "P1"), sealed(keys, "P2")
    records.erase(keys, "P2")
    restored = Vault(backup)
    assert restored.open(erased) is ERASED
    with pytest.raises(KeysUnavailable, match="master-key adopt"):
        restored.open(lost)
    # somebody says that it is lost for good
    backup.adopt()
    assert Vault(backup).open(lost) is ERASED
    assert Vault(backup).open(sealed(backup, "P0")) == "P0@example.org"
    with pytest.raises(KeysUnavailable, match="notes the store"):
        MemoryKeys(records).key_of("P0")


def test_a_restored_store_names_the_persons_that_it_brought_back_and_numbers_of_erasures_grow() -> None:
    records = Records()
    keys = MemoryKeys(records)
    text, _ = sealed(keys, "P1"), sealed(keys, "P2")
    backup = copied(keys, records)
    records.erase(keys, "P1")
    noted = keys.erasures(0).number
    assert brought_back(keys, records.read()) == []
    assert brought_back(backup, records.read()) == ["P1"]
    records.erase(backup, "P1")
    assert brought_back(backup, records.read()) == []
    assert Vault(backup).open(text) is ERASED
    # whoever noted the number of the first erasure learns of the second one
    assert backup.erasures(noted).key_ids == keys.erasures(0).key_ids


def test_a_vault_says_that_its_store_was_restored(caplog: pytest.LogCaptureFixture) -> None:
    keys, now = MemoryKeys(), [0.0]
    vault = Vault(keys, clock=lambda: now[0])
    vault.seal("P1", "t", "f", "x")
    keys.erase("P1")
    now[0] += LEASE_S
    vault.seal("P1", "t", "f", "x")
    keys._erased.clear()
    now[0] += LEASE_S
    vault.seal("P1", "t", "f", "x")
    assert "headwater erase --restored" in caplog.text


def test_a_column_in_clear_is_not_emptied_for_a_key_that_is_missing() -> None:
    text = sealed(MemoryKeys(), "P1")
    with memory_vault(), pytest.raises(KeysAway):
        ClearColumns(("email",)).of_state({"email": text})


def test_a_key_that_nobody_can_unwrap_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = MemoryKeys()
    broken, other = sealed(keys, "P1"), sealed(keys, "P2")
    (facts,) = keys.keys_of("P1")
    find = keys.find
    changed = UnknownKey(facts.key_id, "changed")

    def find_changed(key_ids: Collection[str]) -> Mapping[str, PersonKey | UnknownKey | None]:
        return {key_id: changed if key_id == changed.key_id else key for key_id, key in find(key_ids).items()}

    monkeypatch.setattr(keys, "find", find_changed)
    vault = Vault(keys)
    vault.fetch([broken, other])
    assert vault.open(other) == "P2@example.org"
    with pytest.raises(UnknownKey, match="changed"):
        vault.open(broken)
    masters = MasterKeys.from_environment({"HEADWATER_MASTER_KEY": new_master_key()})
    with pytest.raises(KeysUnavailable, match="HEADWATER_MASTER_KEY"):
        masters.unwrap("another", "key", "P1", b"")
