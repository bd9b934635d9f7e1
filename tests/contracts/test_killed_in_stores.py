"""An erasure that is killed between any two of its steps, with all that holds something of a person.

These are keys, of which one was destroyed before; rows in clear in two generations in PostgreSQL and Elasticsearch,
also some that an earlier erasure has left; and ciphertexts in Valkey, events and observations. A new start finishes
it: the command that is repeated, or the read side, which nobody has told.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import valkey

from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.compose.settings import StackSettings
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.erasing.person import erase_person
from headwater.eventlog.personal.installed import install, uninstall
from headwater.eventlog.personal.postgres import PostgresKeys
from headwater.eventlog.personal.sealed_text import changed_texts
from headwater.eventlog.personal.vault import ERASED, Vault
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.erasing import ClearErasure
from headwater.projections.stores.names import cache_key
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, Place
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, RealServer
from tests.contracts.test_key_stores import MASTER, environment, masters
from tests.support.clear_customers import known_customers
from tests.support.elasticsearch_client import elasticsearch
from tests.support.killed_erasure import appending
from tests.support.killed_in_stores import STORES, killed_at, steps_in
from tests.support.memory_vault import Steps
from tests.support.patience import KEYS_S, patient
from tests.support.personal_customers import everywhere
from tests.support.personal_visits import Visited
from tests.support.seeds import some_of

__all__ = ["environment"]
CLEAR = (Target(known_customers, 1), Target(known_customers, 2))
CACHED = Target(everywhere, 1)
OBSERVATIONS = ObservationRegistry([("here", Visited)])


class Deployment:
    """The stores of a deployment, and its keys."""

    def __init__(self, settings: StoreSettings, opened: ExitStack) -> None:
        self.settings, self.at = settings, 0
        kinds: tuple[type[RealServer], ...] = (OnElasticsearch, OnPostgres, OnValkey)
        *self.clear, self.cache = (opened.enter_context(kind(settings)) for kind in kinds)
        for server, targets in ((self.cache, [CACHED]), *((each, CLEAR) for each in self.clear)):
            for target in targets:
                store = server.open()
                store.create(target, {}, {0: 0})
                store.finish(target)

    def keys(self) -> PostgresKeys:
        return PostgresKeys(self.settings.postgres, self.settings.environment, masters(MASTER))

    def write(self, rows: dict[str, State]) -> None:
        """Write rows into every store; those of the cache have ciphertexts only."""
        start, self.at = self.at, self.at + len(rows)

        def applied(server: RealServer, target: Target, columns: tuple[str, ...]) -> None:
            patches = [
                Patch(key, "0", Place(start + n, 0), {name: row[name] for name in columns})
                for n, (key, row) in enumerate(rows.items())
            ]
            server.open().apply([target], {0: Batch(self.at, {target.tag: patches}, first_offset=start)})

        for server in self.clear:
            for target in CLEAR:
                applied(server, target, ("email", "born", "_order0"))
        applied(self.cache, CACHED, ("email", "_order0"))

    def contents(self) -> str:
        """Everything that the stores have, as they have it."""
        found = list[Any]()
        with psycopg.connect(self.settings.postgres) as connection:
            tables = "SELECT format('SELECT t::text FROM %%I.%%I AS t', schemaname, tablename) FROM pg_tables"
            asked = f"{tables} WHERE schemaname = %s"
            for (statement,) in connection.execute(asked, [self.settings.environment]).fetchall():
                found += connection.execute(statement).fetchall()
        with elasticsearch(self.settings.elasticsearch) as client:
            client.indices.refresh(index=f"{self.settings.environment}.*")
            hits = client.search(index=f"{self.settings.environment}.*", size=10_000)["hits"]["hits"]
            found += [orjson.dumps(hit["_source"]).decode() for hit in hits]
        with valkey.Valkey.from_url(self.settings.valkey) as cache:
            cached: Any = cache
            rows = cached.scan_iter(match=cache_key(self.settings.environment, *CACHED.id, "*"))
            found += [cached.hgetall(key) for key in rows]
        return "\n".join(map(str, found))


@pytest.fixture
def deployment(stack: StackSettings, environment: str) -> Iterator[Deployment]:
    endpoints = stack.endpoints
    settings = StoreSettings(environment, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey, 1)
    with ExitStack() as opened:
        opened.enter_context(patient(KEYS_S))
        vault = Vault(PostgresKeys(settings.postgres, environment, masters(MASTER)), clock=Steps())
        install(vault)
        opened.callback(uninstall, vault)
        yield Deployment(settings, opened)


def canaries(person: str) -> list[str]:
    return [f"canary-{person}-{when}@example.org" for when in ("before", "now")]


def known(deployment: Deployment, vault: Vault, person: str) -> list[str]:
    """A person whose first key was destroyed by an erasure that left its rows, and who is back; the ciphertexts."""
    texts = list[str]()
    for time, mail in enumerate(canaries(person)):
        vault.store.erase(person)
        text = vault.seal(person, "customer.registered", "email", mail)
        row = {"email": text, "born": vault.seal(person, "customer.registered", "born", 1815), "_order0": 1}
        deployment.write({f"{person}-{time}-{number}": row for number in range(2)})
        body = orjson.dumps({"id": "1", "source": "door", "data": {"visitor_id": person, "room": "R", "name": mail}})
        observed = to_entry(OBSERVATIONS.read("visited", body), datetime.now(UTC), None, None).value
        assert observed is not None
        changed_texts(orjson.loads(observed), texts.append)
        texts.append(text)
    return texts


def finish(deployment: Deployment, person: str, log: Path, *, by_command: bool) -> None:
    """A new start, in a process that knows nothing of the one that was killed."""
    keys = deployment.keys()
    stores = ClearErasure(deployment.settings, lambda: STORES, wait=lambda _: None)
    if by_command:
        erase_person(keys, appending(log), person, deployment.settings.environment, {}, in_clear=stores)
    else:
        stores.sweep(keys)
    keys.close()


@pytest.mark.complete
def test_a_new_start_finishes_what_was_killed_between_any_two_steps(deployment: Deployment, tmp_path: Path) -> None:
    """Between some that are drawn, and between all in a long run."""
    vault = Vault(deployment.keys(), clock=Steps())
    known(deployment, vault, "other")
    known(deployment, vault, "whole")
    assert killed_at(0, "whole", deployment.settings, MASTER, tmp_path / "whole") == 0
    steps, left = steps_in(tmp_path / "whole"), 0
    assert steps >= 40, "keys and records, and of each generation in both stores every row"
    for number, step in enumerate(some_of(range(1, steps + 1), 12, 38)):
        person, log = f"P{step}", tmp_path / str(step)
        before, now = canaries(person)
        texts = known(deployment, vault, person)
        stored = deployment.contents()
        assert min(stored.count(before), stored.count(now)) >= 8, "two rows in two generations of two stores"
        assert killed_at(step, person, deployment.settings, MASTER, log) == -signal.SIGKILL
        *_, is_living = (key.erased is None for key in vault.store.keys_of(person))
        assert log.exists() or is_living, "nothing is destroyed before it is recorded"
        stored = deployment.contents()
        assert stored.count(now) >= 8 or not is_living, "nothing is emptied before the key is destroyed"
        left += not is_living and (before in stored or now in stored)
        by_command = is_living or number % 2 == 0
        finish(deployment, person, log, by_command=by_command)
        stored = deployment.contents()
        assert (before in stored, now in stored) == (False, False), step
        assert canaries("other")[1] in stored
        fresh = Vault(deployment.keys())
        assert {fresh.open(text) for text in texts} == {ERASED}
        fresh.close()
        if by_command:
            last = AuditRecord.from_json(log.read_bytes().splitlines()[-1])
            assert (last.phase, last.outcome) == ("end", "done")
    assert left >= 2, "or no read side, and no command, had anything to finish"
    vault.close()
