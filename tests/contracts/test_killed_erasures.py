"""An erasure whose process is killed at any step, and that goes on when it is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

from headwater.compose.settings import StackSettings
from headwater.eventlog.audit.trail import AuditRecord
from headwater.eventlog.personal.postgres import PostgresKeys
from headwater.eventlog.personal.vault import ERASED, Vault
from tests.contracts.test_key_stores import MASTER, environment, opened

__all__ = ["environment", "opened"]


def run(stack: StackSettings, environment: str, person: str, step: int, log: Path) -> subprocess.CompletedProcess[str]:
    variables = {
        "HEADWATER_KEYS": stack.endpoints.postgres,
        "HEADWATER_MASTER_KEY": MASTER,
        "HEADWATER_ENVIRONMENT": environment,
    }
    words = [sys.executable, "-m", "tests.support.killed_erasure", person, str(step), str(log)]
    env = {**os.environ, **variables}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=300)


def records(log: Path) -> list[AuditRecord]:
    return [AuditRecord.from_json(line) for line in log.read_bytes().splitlines()] if log.exists() else []


def test_an_erasure_that_is_killed_at_any_step_is_done_when_it_is_repeated(
    stack: StackSettings, environment: str, opened: Callable[..., PostgresKeys], tmp_path: Path
) -> None:
    vault = Vault(opened())
    vault.seal("P-whole", "customer.registered", "email", "canary")
    whole = run(stack, environment, "P-whole", 0, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    assert steps >= 8, "the records, the reading and the destruction, each before and after"
    killed_before, killed_after = 0, 0
    for step in range(1, steps + 1):
        person, log = f"P{step}", tmp_path / str(step)
        text = vault.seal(person, "customer.registered", "email", "canary")
        other = vault.seal(f"{person}-other", "customer.registered", "email", "canary")
        killed = run(stack, environment, person, step, log)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        begun = records(log)
        (facts,) = vault.store.keys_of(person)
        assert facts.erased is None or begun, "nothing is destroyed before it is recorded"
        killed_before, killed_after = killed_before + (facts.erased is None), killed_after + (facts.erased is not None)
        again = run(stack, environment, person, 0, log)
        assert again.returncode == 0, again.stderr
        (facts,) = vault.store.keys_of(person)
        assert facts.erased is not None
        certificate = records(log)[-1]
        assert (certificate.phase, certificate.outcome) == ("end", "done")
        assert certificate.arguments == {"person": person, "keys": [facts.key_id]}
        assert facts.key_id in (certificate.reason or "") or "destroyed before: 1" in (certificate.reason or "")
        fresh = Vault(opened())
        assert fresh.open(text) is ERASED
        assert fresh.open(other) == "canary"
        fresh.close()
    assert killed_before and killed_after
    with psycopg.connect(stack.endpoints.postgres) as connection:
        table = sql.Identifier(f"{environment}_keys", "person_keys")
        asked = sql.SQL("SELECT count(*) FROM {} WHERE wrapped IS NOT NULL AND person NOT LIKE '%-other'").format(table)
        assert connection.execute(asked).fetchone() == (0,)
    vault.close()
