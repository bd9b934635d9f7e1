"""Columns in clear on real servers: in clear where they are declared and nowhere else, and nowhere once erased."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment
from tests.acceptance.test_personal_values import files_with, headwater, records
from tests.support.clear_patrons import Enrol, Give
from tests.support.elasticsearch_client import elasticsearch
from tests.support.traffic import repeated
from tests.support.waiting import BOUND_S, eventually

pytestmark = pytest.mark.xdist_group("a deployment of its own")

MARK = uuid.uuid4().hex[:12]
ADA, BOB = f"A-{MARK}", f"B-{MARK}"
MAIL, OTHER, PAYEE, LATER, SPARK = (f"{name}{MARK}" for name in ("ada", "bob", "payee", "later", "sam"))
IN_CLEAR = ("base", "pg_wal", "elasticsearch")
"""Of the servers' folders, those that have what is declared to be in plaintext."""


def places(stack: StackSettings, *texts: str) -> set[str]:
    """The folders of the servers, and the logs, that have any of these texts."""
    found = set()
    for root in (stack.state.resolve(), (stack.state / "postgres").resolve()):
        for file in files_with(root, *texts):
            found.add(next((each for each in IN_CLEAR if each in Path(file).parts), file))
    return found


def elsewhere(deployment: RunningDeployment, stack: StackSettings, *texts: str) -> None:
    """Assert that no topic, local state, log or store without such columns has any of these texts."""
    for topic, content in records(deployment).items():
        assert [text for text in texts if text.encode() in content] == [], topic
    assert files_with(Path(deployment.variables["HEADWATER_STATE"]), *texts) == []
    assert places(stack, *texts) <= set(IN_CLEAR)


def mails(deployment: RunningDeployment, stack: StackSettings) -> dict[str, str | None]:
    """What SQL shows under the alias."""
    with psycopg.connect(stack.endpoints.postgres) as connection:
        table = f'"{deployment.variables["HEADWATER_ENVIRONMENT"]}".known_patrons'
        return dict(connection.execute(f"SELECT patron_id, email FROM {table}").fetchall())


def found(deployment: RunningDeployment, text: str) -> list[str]:
    answer = deployment.http.get("/views/known_patrons/search", params={"q": text}).raise_for_status().json()
    return [row["patron_id"] for row in answer["rows"]]


def filtered(deployment: RunningDeployment, mail: str) -> list[str]:
    answer = deployment.http.get("/views/known_patrons", params={"email": mail}).raise_for_status().json()
    return [row["patron_id"] for row in answer["rows"]]


def give(deployment: RunningDeployment) -> None:
    """Patches for all rows."""
    for person in (ADA, BOB):
        deployment.send(Give(patron_id=person, payee_id=f"Q-{MARK}", payee_name=PAYEE, cents=1))


@pytest.mark.complete
def test_an_erased_person_is_in_no_column_and_no_file(deployment: RunningDeployment, stack: StackSettings) -> None:
    deployment.send(Enrol(patron_id=ADA, email=MAIL, name="Ada", born=1815))
    deployment.send(Enrol(patron_id=BOB, email=OTHER, name="Bob"))
    deployment.send(Give(patron_id=ADA, payee_id=f"Q-{MARK}", payee_name=PAYEE, cents=5))
    deployment.rows("known_patrons")
    assert mails(deployment, stack) == {ADA: MAIL, BOB: OTHER}
    eventually(lambda: found(deployment, MAIL) == [ADA], "it is found")
    assert filtered(deployment, MAIL) == [ADA]
    assert deployment.http.get(f"/views/known_patrons/{ADA}").json()["email"] == MAIL
    analyzed(stack)
    checkpointed(stack)
    assert places(stack, MAIL) >= {"base", "elasticsearch"}, "or nothing is searched below"
    elsewhere(deployment, stack, MAIL, OTHER, PAYEE)
    deployment.rebuild("known_patrons")  # and the generation before it is kept
    planned = deployment.http.delete(f"/persons/{ADA}?dry_run=true").raise_for_status().json()
    assert {(row["store"], row["generation"], row["rows"]) for row in planned["in_clear"]} == {
        (store, generation, 1) for store in ("postgres", "elasticsearch") for generation in (1, 2)
    }
    with repeated(partial(give, deployment), 0.05), ThreadPoolExecutor(1) as other_thread:
        rebuilding = other_thread.submit(deployment.rebuild, "known_patrons")
        said = headwater(deployment, "erase", ADA, "--yes")
        assert "rows whose plaintext values were emptied: " in said
        rebuilding.result()
        eventually(lambda: found(deployment, MAIL) == [], "the search finds nothing")
        eventually(lambda: mails(deployment, stack) == {ADA: None, BOB: OTHER}, "SQL shows nothing")
    assert filtered(deployment, MAIL) == []
    assert deployment.http.get(f"/views/known_patrons/{ADA}").json()["email"] is None
    assert (found(deployment, OTHER), filtered(deployment, OTHER)) == ([BOB], [BOB])
    again = deployment.http.delete(f"/persons/{ADA}").raise_for_status().json()
    assert [row["rows"] for row in again["in_clear"] if row["rows"]] == []
    assert all(not line["problem"] for line in again["in_clear"])
    deployment.rebuild("known_patrons")
    deployment.verify("known_patrons", "sealed_patrons")
    assert mails(deployment, stack) == {ADA: None, BOB: OTHER}
    certificate = headwater(deployment, "audit", "--verb", "erase")
    assert not any(each in certificate for each in (MAIL, OTHER, PAYEE))

    def is_clean() -> bool:  # a row stays while a transaction from before may read it
        cleaned(deployment, stack)
        return places(stack, MAIL) <= {"pg_wal"}

    eventually(is_clean, "heap and segments have nothing of it")
    assert "base" in places(stack, OTHER)
    elsewhere(deployment, stack, MAIL, OTHER, PAYEE)


def checkpointed(stack: StackSettings) -> None:
    """Write the heap to the disk."""
    with psycopg.connect(stack.endpoints.postgres, autocommit=True) as connection:
        connection.execute("CHECKPOINT")


def analyzed(stack: StackSettings) -> None:
    """Collect statistics, which have values of their own from columns, as PostgreSQL does in time."""
    with psycopg.connect(stack.endpoints.postgres, autocommit=True) as connection:
        connection.execute("ANALYZE")
        kept = "SELECT attname FROM pg_stats WHERE concat(most_common_vals::text, histogram_bounds::text) LIKE ANY (%s)"
        assert connection.execute(kept, [[f"%{MAIL}%", f"%{OTHER}%"]]).fetchall() == []


def cleaned(deployment: RunningDeployment, stack: StackSettings) -> None:
    """Vacuum the tables, and merge the segments, as the servers do in time."""
    environment = deployment.variables["HEADWATER_ENVIRONMENT"]
    with psycopg.connect(stack.endpoints.postgres, autocommit=True) as connection:
        asked = "SELECT format('VACUUM FULL %%I.%%I', schemaname, tablename) FROM pg_tables WHERE schemaname = %s"
        for (statement,) in connection.execute(asked, [environment]).fetchall():
            connection.execute(statement)
    checkpointed(stack)
    with elasticsearch(stack.endpoints.elasticsearch) as client:

        def merged() -> bool:
            client.indices.flush(index=f"{environment}.*", force=True)
            client.indices.forcemerge(index=f"{environment}.*", max_num_segments=1)
            client.indices.flush(index=f"{environment}.*", force=True)
            return "elasticsearch" not in places(stack, MAIL)

        eventually(merged, "segments and translogs have nothing of it", BOUND_S)


@pytest.mark.complete
def test_a_rebuild_by_spark_has_the_same_columns_in_clear(deployment: RunningDeployment, stack: StackSettings) -> None:
    person = f"S-{MARK}"
    deployment.send(Enrol(patron_id=person, email=SPARK, name="Sam"))
    deployment.rows("known_patrons")
    before = mails(deployment, stack)
    assert before[person] == SPARK
    deployment.replay("rebuild", "known_patrons", "--engine", "spark")
    assert mails(deployment, stack) == before
    assert found(deployment, SPARK) == [person]
    assert headwater(deployment, "erase", person, "--yes")
    assert (mails(deployment, stack)[person], found(deployment, SPARK)) == (None, [])


@pytest.mark.complete
def test_an_erasure_that_was_killed_goes_on_by_itself(deployment: RunningDeployment, stack: StackSettings) -> None:
    """Its process ended right after the key was destroyed: nobody has emptied anything yet."""
    person = f"L-{MARK}"
    deployment.send(Enrol(patron_id=person, email=LATER, name="Lou"))
    deployment.rows("known_patrons")
    eventually(lambda: found(deployment, LATER) == [person], "it is found")
    with psycopg.connect(deployment.variables.get("HEADWATER_KEYS", stack.endpoints.postgres)) as connection:
        schema = f'"{deployment.variables["HEADWATER_ENVIRONMENT"]}_keys"'
        destroyed: Any = connection.execute(
            f"UPDATE {schema}.person_keys SET wrapped = NULL, wrapped_by = NULL, erased = now(), erasure = "
            f"(SELECT coalesce(max(erasure), 0) + 1 FROM {schema}.person_keys) WHERE person = %s",
            [person],
        )
        assert destroyed.rowcount == 1
    eventually(lambda: mails(deployment, stack)[person] is None, "the read side has emptied the table")
    eventually(lambda: found(deployment, LATER) == [], "and the index")
