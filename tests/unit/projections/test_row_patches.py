"""Patches of the rows that a store refused: who makes them, and that they are not all in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.letters import Letter
from headwater.eventlog.settings import LogSettings
from headwater.projections.folding import engine
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.generations.rebuild.engine import Load
from headwater.projections.table.patch import Patch
from headwater.projections.testing.contracts import history
from tests.contracts.view_histories import BY_THING, Put
from tests.unit.projections.test_folding import Record

SOURCES = [source for source in history(BY_THING, [Put], 5, length=200).sources if source.position.partition == 0]
KEYS = {source.envelope.data["thing_id"] for source in SOURCES}
MALFORMED = Record(SOURCES[-1].position.offset + 1, 1, b"bad", b"{ bad")


@dataclass
class Log:
    """One partition. read: the records that were read so far."""

    records: Sequence[Record] = field(default_factory=lambda: [Record.of(source) for source in SOURCES])
    read: int = 0

    def batches(self, *_: object) -> Iterator[Sequence[Record]]:
        for record in self.records:
            self.read += 1
            yield [record]


RANGES = {"0": (0, MALFORMED.at + 1)}


def engine_of(log: Log, path: Path) -> FoldingEngine:
    log_of_kafka: Any = log
    workers: Any = None
    return FoldingEngine(LogSettings(state=path), log_of_kafka, workers, None)


def made(log: Log, path: Path) -> Iterator[Patch]:
    return iter(engine_of(log, path).row_patches(Load(BY_THING, RANGES, []), KEYS))


def test_patches_of_a_top_up_are_not_all_in_memory(tmp_path: Path) -> None:
    log = Log()
    patches = engine_of(log, tmp_path).patches(BY_THING, RANGES)
    next(patches)
    assert log.read < 10
    assert 1 + sum(1 for _ in patches) >= len(SOURCES)


def test_a_record_that_a_top_up_cannot_read_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody else may tell: the live query of this version begins after it."""
    written: dict[str, str] = {}

    class Letters:
        def __init__(self, _: LogSettings) -> None: ...

        def put(self, key: str, letter: bytes) -> None:
            written[key] = Letter.from_json(letter).reason

        def flush(self) -> None:
            written["flushed"] = ""

    monkeypatch.setattr(engine, "DeadLetters", Letters)
    unread = Record(MALFORMED.at, 1, b"no", b"no event")
    log = Log([*(Record.of(source) for source in SOURCES), unread])
    assert len(list(engine_of(log, tmp_path).patches(BY_THING, RANGES))) >= len(SOURCES)
    assert written == {f"events/0/{unread.at}": 'not an event: malformed JSON, or no "specversion"', "flushed": ""}


def test_patches_are_made_as_they_are_taken(tmp_path: Path) -> None:
    log = Log()
    patches = made(log, tmp_path)
    next(patches)
    assert log.read < len(SOURCES) + 10, "tombstones are looked for first"
    assert 1 + sum(1 for _ in patches) >= len(SOURCES)


def test_of_a_row_with_known_streams_only_their_events_are_decoded(tmp_path: Path) -> None:
    key = sorted(KEYS)[0]
    own = [source for source in SOURCES if source.envelope.data["thing_id"] == key]
    streams = {source.envelope.stream for source in own}
    unread = Record(MALFORMED.at, 1, b"thing/other/1", b"{ malformed")
    log, reports = Log([*(Record.of(source) for source in SOURCES), unread]), list[tuple[int, int]]()
    load = Load(BY_THING, RANGES, [], lambda done, total: reports.append((done, total)))
    patches = list(engine_of(log, tmp_path).row_patches(load, {key}, streams))
    assert [patch.place.offset for patch in patches] == [each.position.offset for each in own]
    assert reports[-1][0] == 2 * len(log.records), "it is read for tombstones, and for patches"
    assert list(engine_of(log, tmp_path).row_patches(load, {key}, ["thing/other"])) == []


def test_a_row_is_made_without_the_events_that_cannot_be_read(tmp_path: Path) -> None:
    log = Log([*(Record.of(source) for source in SOURCES), MALFORMED])
    assert len(list(made(log, tmp_path))) == len(list(made(Log(), tmp_path)))
