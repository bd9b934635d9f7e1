"""The contract of stores of keys, in memory and in PostgreSQL; and what only PostgreSQL has."""

from __future__ import annotations

import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator

import psycopg
import pytest
from typer.testing import CliRunner

from headwater.compose.settings import StackSettings
from headwater.eventlog.erasing import cli, master_key
from headwater.eventlog.errors import KeysUnavailable, UnknownKey
from headwater.eventlog.personal.master_keys import MasterKeys, new_master_key
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.ports import SECRET_BYTES, KeyStore
from headwater.eventlog.personal.postgres import PostgresKeys
from headwater.eventlog.personal.vault import Vault
from tests.support.audited import MemoryTrail
from tests.support.key_records import Records

MASTER = new_master_key()


def masters(*texts: str) -> MasterKeys:
    return MasterKeys.from_environment({"HEADWATER_MASTER_KEY": " ".join(texts)})


@pytest.fixture
def environment(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"k{uuid.uuid4().hex[:12]}"
    yield name
    if "stack" in request.fixturenames:
        stack: StackSettings = request.getfixturevalue("stack")
        with psycopg.connect(stack.endpoints.postgres) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}_keys" CASCADE')


@pytest.fixture
def opened(stack: StackSettings, environment: str) -> Iterator[Callable[..., PostgresKeys]]:
    made: list[PostgresKeys] = []

    def open_(
        keys: MasterKeys | None = None, url: str = stack.endpoints.postgres, records: Records | None = None
    ) -> PostgresKeys:
        made.append(PostgresKeys(url, environment, keys or masters(MASTER), records))
        return made[-1]

    yield open_
    for each in made:
        each.close()


def fulfils_the_contract(store: KeyStore) -> None:
    first = store.key_of("P1")
    assert store.key_of("P1") == first
    assert (first.person, len(first.secret)) == ("P1", SECRET_BYTES)
    other = store.key_of('it\'s "P2" — ü')
    assert len({first.key_id, other.key_id, first.secret, other.secret}) == 4
    assert store.find([first.key_id, other.key_id, "no such key"]) == {first.key_id: first, other.key_id: other}
    assert store.erasures(0).key_ids == [] or store.erasures(0).key_ids == ()
    assert [(key.key_id, key.erased) for key in store.keys_of("P1")] == [(first.key_id, None)]
    (erased,) = store.erase("P1")
    assert erased.key_id == first.key_id
    assert erased.erased is not None
    assert list(store.erase("P1")) == []
    assert list(store.erase("nobody")) == []
    assert store.find([first.key_id, other.key_id]) == {first.key_id: None, other.key_id: other}
    again = store.key_of("P1")
    assert again.key_id != first.key_id
    assert (first.earlier, again.earlier) == (None, erased)
    assert store.find([again.key_id]) == {again.key_id: again}
    assert [key.erased is None for key in store.keys_of("P1")] == [False, True]
    number, key_ids = store.erasures(0)
    assert list(key_ids) == [first.key_id]
    assert list(store.erasures(number).key_ids) == []
    assert store.key_unless_erased("P1") == again
    store.erase("P1")
    assert store.key_unless_erased("P1") is None
    assert [key.erased is None for key in store.keys_of("P1")] == [False, False]
    store.erase("P3")
    new = store.key_unless_erased("P3")
    assert (new, store.key_of("P3")) == (store.key_unless_erased("P3"), new)
    assert new is not None
    later = store.erasures(number)
    assert later.number > number
    assert list(later.key_ids) == [again.key_id]
    third, earlier = store.key_of("P1"), store.keys_of("P1")[1]
    assert (third.earlier, earlier.key_id) == (earlier, again.key_id)


def test_keys_in_memory() -> None:
    fulfils_the_contract(MemoryKeys())


def test_keys_in_postgresql(opened: Callable[..., PostgresKeys]) -> None:
    fulfils_the_contract(opened())


def test_many_processes_get_the_same_key(opened: Callable[..., PostgresKeys]) -> None:
    found: list[str] = []

    def ask(store: PostgresKeys) -> None:
        found.extend(store.key_of(f"P{number}").key_id for number in range(20))

    threads = [threading.Thread(target=ask, args=(opened(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert (len(found), len(set(found))) == (80, 20)


def test_a_rotation_wraps_all_keys_anew_and_the_old_master_key_is_not_needed(
    opened: Callable[..., PostgresKeys],
) -> None:
    new = new_master_key()
    before = [opened().key_of(f"P{number}") for number in range(3)]
    both = opened(masters(new, MASTER))
    assert both.key_of("P0") == before[0]
    with pytest.raises(KeysUnavailable, match="HEADWATER_MASTER_KEY"):
        opened(masters(new)).key_of("P0")
    assert (both.rewrap(), both.rewrap()) == (3, 0)
    assert [opened(masters(new)).key_of(f"P{number}") for number in range(3)] == before
    with pytest.raises(KeysUnavailable):
        opened().key_of("P0")


def test_no_row_has_a_key_in_clear_and_none_at_all_after_an_erasure(
    opened: Callable[..., PostgresKeys], stack: StackSettings, environment: str
) -> None:
    key = opened().key_of("P1")

    def stored() -> tuple[bytes | None, str]:
        with psycopg.connect(stack.endpoints.postgres) as connection:
            rows = connection.execute(f'SELECT wrapped, t::text FROM "{environment}_keys".person_keys t').fetchall()
        ((wrapped, text),) = rows
        return wrapped, text

    wrapped, text = stored()
    assert wrapped is not None
    assert key.secret not in wrapped
    assert key.secret.hex() not in text
    opened().erase("P1")
    assert stored()[0] is None
    assert wrapped.hex() not in stored()[1]


def test_a_server_that_is_away_is_an_outage_of_keys_and_nothing_connects_before(
    opened: Callable[..., PostgresKeys],
) -> None:
    store = opened(url="postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(KeysUnavailable) as away:
        store.key_of("P1")
    assert "nobody@" not in str(away.value)


def test_another_database_in_place_of_the_store_is_an_outage_and_gets_no_tables(
    opened: Callable[..., PostgresKeys], stack: StackSettings, environment: str
) -> None:
    records = Records()
    store = opened(records=records)
    erased, lost = store.key_of("P1"), store.key_of("P2")
    records.erase(store, "P1")
    assert records.read().stores == (erased.key_id[:8],)
    with psycopg.connect(stack.endpoints.postgres) as connection:
        connection.execute(f'DROP SCHEMA "{environment}_keys" CASCADE')
    with pytest.raises(KeysUnavailable, match="has no keys, and the log"):
        opened(records=records).key_of("P1")
    with psycopg.connect(stack.endpoints.postgres) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [f"{environment}_keys"]).fetchone() == (None,)
    # without a look at the log, as in a worker process, a missing key is one that only the log can call destroyed
    worker = PostgresKeys(stack.endpoints.postgres, environment, masters(MASTER), records, pins=False)
    assert worker.find([erased.key_id, lost.key_id]) == {erased.key_id: None}
    worker.close()
    opened(records=records).adopt()
    assert opened(records=records).find([erased.key_id, lost.key_id]) == {erased.key_id: None, lost.key_id: None}
    assert opened(records=records).key_of("P2").key_id[:8] == records.read().stores[-1]


def test_a_key_that_was_changed_in_its_store_holds_up_no_other(
    opened: Callable[..., PostgresKeys], stack: StackSettings, environment: str
) -> None:
    broken, other = opened().key_of("P1"), opened().key_of("P2")
    with psycopg.connect(stack.endpoints.postgres) as connection:
        connection.execute(f"UPDATE \"{environment}_keys\".person_keys SET wrapped = 'x' WHERE person = 'P1'")
    found = opened().find([broken.key_id, other.key_id])
    assert found[other.key_id] == other
    assert isinstance(found[broken.key_id], UnknownKey)


def test_an_erasure_reaches_the_vaults_of_other_processes(opened: Callable[..., PostgresKeys]) -> None:
    now = [0.0]
    ours, theirs = Vault(opened(), clock=lambda: now[0]), Vault(opened(), clock=lambda: now[0])
    text = ours.seal("P1", "t", "f", "secret")
    assert theirs.open(text) == "secret"
    ours.store.erase("P1")
    now[0] += 1.0
    assert repr(theirs.open(text)) == repr(ours.open(text)) == "ERASED"
    ours.close()
    theirs.close()


def test_the_commands_erase_a_person_and_rotate_the_master_key(
    stack: StackSettings,
    environment: str,
    opened: Callable[..., PostgresKeys],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trail, new = MemoryTrail(), new_master_key()
    monkeypatch.setattr(cli, "Trail", trail)
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", trail)
    monkeypatch.setenv("HEADWATER_KEYS", stack.endpoints.postgres)
    monkeypatch.setenv("HEADWATER_MASTER_KEY", MASTER)
    monkeypatch.setenv("HEADWATER_ENVIRONMENT", environment)
    records = Records()
    for module in (cli, master_key):
        monkeypatch.setattr(module, "LoggedKeys", lambda _: records)
    backup = opened(records=records).key_of("P1")
    with psycopg.connect(stack.endpoints.postgres) as connection:
        connection.execute(f'CREATE TABLE "{environment}_keys".backup AS TABLE "{environment}_keys".person_keys')
    key = opened().key_of("P1")
    runner = CliRunner()
    assert f"would be destroyed: {key.key_id}" in runner.invoke(cli.app, ["P1", "--dry-run"]).output
    assert runner.invoke(cli.app, ["P1"], input="n\n").exit_code == 1
    assert trail.records == []
    monkeypatch.setenv("HEADWATER_MASTER_KEY", f"{new} {MASTER}")
    assert "1 keys wrapped" in runner.invoke(master_key.app, ["rewrap"]).output
    done = runner.invoke(cli.app, ["P1", "--yes", "--json"])
    assert (done.exit_code, key.key_id in done.output) == (0, True)
    again = runner.invoke(cli.app, ["P1", "--yes"])
    assert "destroyed before: 1" in again.output
    assert [record.outcome for record in trail.records if record.verb == "erase"] == [None, "done", None, "done"]
    records.records += trail.records
    assert runner.invoke(cli.app, ["--restored", "--dry-run"]).exit_code == 0
    with psycopg.connect(stack.endpoints.postgres) as connection:
        connection.execute(f'DELETE FROM "{environment}_keys".person_keys')
        connection.execute(f'INSERT INTO "{environment}_keys".person_keys TABLE "{environment}_keys".backup')
    found = runner.invoke(cli.app, ["--restored", "--dry-run"])
    assert (found.exit_code, backup.key_id in found.output) == (3, True)
    assert runner.invoke(cli.app, ["--restored", "--yes"]).exit_code == 0
    assert runner.invoke(cli.app, ["--restored", "--dry-run"]).exit_code == 0
    assert runner.invoke(cli.app, ["P1", "--restored"]).exit_code == 2
    printed = runner.invoke(master_key.app, ["make"]).output.strip()
    assert len(b64encode(bytes(32))) == len(printed)
    monkeypatch.setenv("HEADWATER_MASTER_KEY", "short")
    refused = runner.invoke(cli.app, ["P1", "--yes"])
    assert refused.exit_code == 1
