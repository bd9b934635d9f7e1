"""What `replay` does is in the audit log: with its views, and which of them failed."""

from __future__ import annotations

import pytest
import typer.testing

from headwater.eventlog.audit.trail import AuditRecord
from tests.support.audited import MemoryTrail
from tests.unit.replay.played import Stage, generation


@pytest.fixture
def trail(monkeypatch: pytest.MonkeyPatch) -> MemoryTrail:
    made = MemoryTrail()
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", made)
    return made


def end(trail: MemoryTrail) -> AuditRecord:
    """The record of the end of the only action."""
    begun, ended = trail.records
    assert (begun.phase, ended.phase, begun.action) == ("begin", "end", ended.action)
    return ended


def test_a_view_that_does_not_exist_is_refused(stage: Stage, trail: MemoryTrail) -> None:
    assert stage.run("rebuild", "nothing").code == 2
    ended = end(trail)
    assert (ended.verb, ended.outcome, ended.exit_code) == ("replay rebuild", "refused", 2)
    assert ended.arguments["views"] == ["nothing"] and 'unknown view "nothing"' in (ended.reason or "")


def test_a_drop_that_nobody_confirms_is_refused(
    stage: Stage, trail: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typer.testing._NamedTextIOWrapper, "isatty", lambda _: True)
    stage.registry.generations = [generation("old", 1, "live")]
    assert stage.run("drop", "old", answer="n\n").code == 1
    assert (end(trail).outcome, end(trail).reason) == ("refused", "not confirmed")


def test_views_that_fail_are_named(stage: Stage, trail: MemoryTrail) -> None:
    assert stage.run("publish", "listings", "city_market").code == 1
    ended = end(trail)
    assert (ended.outcome, ended.exit_code) == ("failed", 1)
    assert "listings: " in (ended.reason or "") and "city_market: " in (ended.reason or "")


def test_what_only_looks_is_not_recorded(stage: Stage, trail: MemoryTrail) -> None:
    stage.run("list")
    stage.run("generations")
    stage.run("dead-letters", "list")
    stage.run("rebuild", "listings", "--dry-run")
    assert trail.records == []


def test_a_row_is_only_recorded_if_it_may_be_replaced(stage: Stage, trail: MemoryTrail) -> None:
    assert stage.run("row", "listings", "L1").code == 1  # nothing is live
    assert trail.records == []
    assert stage.run("row", "listings", "L1", "--write").code == 1
    ended = end(trail)
    assert (ended.verb, ended.outcome) == ("replay row", "failed")
    assert (ended.arguments["view"], ended.arguments["key"]) == ("listings", "L1")
