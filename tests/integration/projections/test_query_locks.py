"""Locks on the queries of stream views, on a real PostgreSQL, between processes that share no folder."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import closing

import psycopg
import pytest

from headwater.compose.settings import StackSettings
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.registry.database import CHECK_S, QueryLocks
from tests.support.waiting import eventually

pytestmark = pytest.mark.servers

TAG = "gates@1.g1"
HOLDER = """
import sys
from headwater.projections.generations.registry.database import QueryLocks
locks = QueryLocks(sys.argv[1], sys.argv[2], "the read side")
print(locks.hold(sys.argv[3]), flush=True)
sys.stdin.read()
"""


class Scene:
    """A deployment of its own, and time that passes when told."""

    def __init__(self, url: str) -> None:
        self.url, self.environment, self.now = url, f"t_{uuid.uuid4().hex[:12]}", 0.0

    def locks(self, program: str = "the read side") -> QueryLocks:
        return QueryLocks(self.url, self.environment, program, lambda: self.now)

    def disconnect(self, program: str) -> None:
        """End the connections of this program, as a restart of the server does."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            query = "SELECT pg_terminate_backend(pid, 240000) FROM pg_stat_activity WHERE application_name LIKE %s"
            assert connection.execute(query, [f"{program}, process {os.getpid()} %"]).fetchall() == [(True,)]


@pytest.fixture
def scene(stack: StackSettings) -> Scene:
    return Scene(stack.endpoints.postgres)


def test_a_process_elsewhere_is_named_and_its_lock_ends_with_it(scene: Scene) -> None:
    words = [sys.executable, "-c", HOLDER, scene.url, scene.environment, TAG]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "None\n"
        with closing(scene.locks()) as locks:
            assert f"the read side, process {other.pid} on " in (locks.hold(TAG) or "")
            assert locks.hold("gates@1.g2") is None, "each query has a lock of its own"
            other.kill()
            eventually(lambda: locks.hold(TAG) is None, "the lock of a killed process is free")


def test_a_released_lock_is_free(scene: Scene) -> None:
    with closing(scene.locks()) as one, closing(scene.locks("replay")) as other:
        assert one.hold(TAG) is None
        assert (other.hold(TAG) or "").startswith(f"the read side, process {os.getpid()} on ")
        one.release(TAG)
        assert other.hold(TAG) is None


def test_a_lock_whose_connection_broke_is_taken_again_unless_another_process_has_it(scene: Scene) -> None:
    program, kept, lost = f"side {scene.environment}", "kept@1.g1", "lost@1.g1"
    with closing(scene.locks(program)) as locks, closing(scene.locks("other")) as other:
        assert [locks.hold(kept), locks.hold(lost)] == [None, None]
        scene.now += CHECK_S
        assert locks.taken() == {}
        scene.disconnect(program)
        assert other.hold(lost) is None
        scene.now += CHECK_S
        with pytest.raises(StoreUnavailable, match="PostgreSQL"):  # it finds the connection broken
            locks.taken()
        scene.now += CHECK_S
        found = locks.taken()
        assert list(found) == [lost]
        assert found[lost].startswith(f"other, process {os.getpid()} on ")
        assert other.hold(kept) is not None, "it is held again"
