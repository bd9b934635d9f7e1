"""Two deployments with the same Kafka, Kafka Connect and captured database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from headwater.compose.stack import Stack
from headwater.samples.shop.source import Customer
from tests.integration.sources.test_source_commands import Deployment, deployed
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Kafka Connect")]

INSERT = "INSERT INTO customers (public_id, name, email) VALUES (gen_random_uuid(), '{0}', '{0}@example.org')"


@dataclass
class Other(Deployment):
    """A deployment of another environment that captures the database of the first."""

    database: str = ""

    def connection(self, role: str, **parts: str) -> str:
        return make_conninfo(self.stack.endpoints.postgres, **{"user": role, "dbname": self.database, **parts})


@pytest.fixture
def both(capturing: Stack) -> Iterator[tuple[Deployment, Deployment]]:
    with deployed(capturing) as first:
        second = Other(capturing, f"{first.environment}_b", first.owner, database=first.environment)
        yield first, second
        second.run("remove", "shop", "--topics", "--yes")


def names(deployment: Deployment) -> set[str]:
    topic = deployment.topic(Customer)
    topic.read()
    return {str(row["name"]) for row in topic.rows.values()}


def problems(deployment: Deployment) -> list[Any]:
    (source,) = json.loads(deployment.run("status", "--json").stdout)["sources"]
    return list(source["problems"])


def test_each_has_all_rows_and_removes_what_is_its_own(both: tuple[Deployment, Deployment]) -> None:
    first, second = both
    first.sql(INSERT.format("Ann"))
    for each in both:
        each.works("apply")
    for each in both:
        eventually(lambda each=each: each.status()["healthy"] and names(each) == {"Ann"}, "it is read")  # type: ignore[misc]
        assert each.works("apply") == "shop: as declared\n", "the other one is left as it is"
    first.works("pause")
    first.sql(INSERT.format("Bo"))
    eventually(lambda: names(second) == {"Ann", "Bo"}, "one that is paused holds back no other")
    first.sql("TRUNCATE customers CASCADE")
    for each in both:
        assert any("all rows deleted" in problem for problem in problems(each)), "each is told of it"
    first.works("resume")
    second.works("apply")
    eventually(lambda: second.status()["healthy"], "it is mended")
    assert names(second) == set()
    assert not first.status()["healthy"], "what one has mended is still to be mended by the other"
    first.works("apply")
    eventually(lambda: first.status()["healthy"] and names(first) == set(), "it is mended as well")
    assert first.works("remove", "shop", "--topics", "--yes")
    second.sql(INSERT.format("Cleo"))
    eventually(lambda: names(second) == {"Cleo"}, "the other one goes on")
    assert second.works("apply") == "shop: as declared\n"
    assert second.status()["healthy"]
