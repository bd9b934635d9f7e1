"""The view `search_alerts` on Spark: the rows that plain Python expects, in whatever order records are read."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from pyspark.sql import Row

from headwater.commands.declaring.observation import ObservationRegistry, to_entry
from headwater.compose.samples.saved_searches import Change, rounds
from headwater.eventlog.envelope import Envelope, encode_event, format_time
from headwater.samples.saved_searches.domain import Change as ChangeSearch
from headwater.samples.saved_searches.domain import Delete, Save, SavedSearch, saved_search
from headwater.samples.saved_searches.views import search_alerts
from tests.samples.saved_searches import alerts
from tests.samples.stored_rows import Rows, differences
from tests.support.gate_events import owner_s_beat, raw_event
from tests.support.observed import beat, cut, raw
from tests.support.seeds import batches
from tests.support.stream_queries import run

pytestmark = pytest.mark.jvm
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMANDS: Any = {"save": Save, "change": ChangeSearch, "delete": Delete}
LATE_AFTER = timedelta(minutes=1)


class Happened(NamedTuple):
    """A change with its time and the time when it was recorded."""

    change: Change
    time: datetime
    recorded: datetime


def happened(seed: int, start: datetime = START) -> list[Happened]:
    """Rounds 10 seconds apart, in the order of their times; most are recorded later, and some homes too late.

    The changes of a search are recorded in their order, as its handler decides them.
    """
    chance, found, time = random.Random(seed), list[Happened](), start
    last: dict[str, datetime] = {}
    for changes in rounds(chance):
        for event in chance.sample(changes, len(changes)):
            time += timedelta(milliseconds=chance.choice((1, 20, 700)))
            delays = (0.0, 0.0, 5.0, 40.0, 60.0, *((60.001, 900.0) if event.kind == "offer" else ()))
            recorded = time + timedelta(seconds=chance.choice(delays))
            if event.kind != "offer":
                search = event.data["search_id"]
                recorded = last[search] = max(recorded, last.get(search, recorded))
            found.append(Happened(event, time, recorded))
        time += timedelta(seconds=10)
    return found


def records(changes: Sequence[Happened]) -> list[Row]:
    """The records of these changes, in the order in which they were recorded."""
    return [record() for _, record in in_log_order(changes)]


def in_log_order(changes: Sequence[Happened]) -> list[tuple[Happened, Callable[[], Row]]]:
    """These changes in the order in which they are recorded, and what makes their records, then or later."""
    registry = ObservationRegistry.load(["saved_searches"])
    states, numbers = defaultdict[str, SavedSearch](SavedSearch), defaultdict[str, int](int)
    found = list[tuple[Happened, Callable[[], Row]]]()
    for change in changes:
        if change.change.kind == "offer":
            found.append((change, partial(offer_record, registry, change)))
        else:
            id_ = change.change.data["search_id"]
            (event,) = saved_search.decide(COMMANDS[change.change.kind](**change.change.data), states[id_])
            states[id_], numbers[id_] = saved_search.evolve(states[id_], event), numbers[id_] + 1
            found.append((change, partial(event_record, event, id_, numbers[id_], change)))
    return sorted(found, key=lambda pair: pair[0].recorded)


def offer_record(registry: ObservationRegistry, at: Happened) -> Row:
    body = {**at.change.request.body, "time": at.time.isoformat()}
    entry = to_entry(registry.read("home_offered", orjson.dumps(body)), at.recorded, None, None)
    return raw(entry.key, entry.value, datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC))


def event_record(event: Any, id_: str, sequence: int, at: Happened) -> Row:
    stream = f"saved_search/{id_}"
    command = Envelope(f"c{id_}{sequence}", "saved_search.save", stream, at.time, {})
    times = format_time(at.time), format_time(at.recorded)
    value = encode_event(
        command, *times, "/headwater/saved_search", event.type, 1, sequence, event.model_dump_json().encode()
    )
    return raw_event(f"{stream}/{sequence}", value, at.time)


def expected(changes: Sequence[Happened]) -> Rows:
    return alerts(change.change for change in changes if change.recorded - change.time <= LATE_AFTER)


@pytest.mark.complete
def test_rows_are_those_that_python_expects_whatever_the_order_and_the_batches(tmp_path: Path) -> None:
    changes = happened(11)
    rows, found = expected(changes), records(changes)
    last = max(record.timestamp for record in found)
    beats = [last + timedelta(hours=1, seconds=number) for number in range(2)]
    quiet = [[beat(time), owner_s_beat(time)] for time in beats]
    replayed = run(search_alerts, [found, *quiet], tmp_path / "replayed", 1)
    assert len(rows) > 50
    assert list(differences("search_alerts", rows, replayed.left, "Python")) == []
    live = run(search_alerts, [*cut(found, random.Random(5), batches(14)), *quiet], tmp_path / "live", 2)
    assert live.left == replayed.left
    assert len(live.sent) == len(replayed.sent) == len(rows), "a row is sent once"
    assert (live.dropped_by_watermark, replayed.dropped_by_watermark) == (0, 0)
