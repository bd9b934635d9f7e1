"""Numbers at the edges of their types have one text in every column, store and engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.envelope import Envelope, Position, encode
from headwater.projections.folding.writing import batches
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.reader import lift
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add as total
from headwater.projections.table.folds import collect, first, last, maximum, minimum, nested, ratio
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import Server
from tests.contracts.test_view_stores import START, created, server, store_name
from tests.support.recording import recording
from tests.unit.projections.test_folding import folder_of

__all__ = ["server", "store_name"]  # fixtures


class Measured(Event, type="probe.measured"):
    probe: str
    number: int
    real: float


probes = recording("probe", "probe", Measured)

INTEGERS = (0, 1, -1, 2**53, 2**53 + 1, 10**18, 2**63 - 1, -(2**63))
FLOATS = (
    0.0, -0.0, 5.0, 0.1, 1e15, 1e16, 1e21, 1e22, -1e22, 9.22337e18, 2.0**63, 5e-324, -5e-324, 1e-7,
    1.7976931348623157e308,
)  # fmt: skip
FOLDS: Mapping[str, Callable[..., Any]] = {
    "last": last,
    "first": first,
    "highest": maximum,
    "lowest": minimum,
    "all": collect,
}
VIEW = TableView(
    "edges",
    "probe",
    {
        **{f"{name}_{field}": fold({Measured: field}) for name, fold in FOLDS.items() for field in ("number", "real")},
        "parts": nested("probe", {Measured: "probe"}, {"real": last({Measured: "real"})}),
        "sum": total({Measured: "number"}),
        "mean": ratio(total({Measured: "number"}), total({Measured: -1})),
    },
    (Postgres(), Elasticsearch(), Cache()),
)
PROBES = {
    f"{number}/{real!r}": {"number": number, "real": real}
    for at, real in enumerate(FLOATS)
    for number in [INTEGERS[at % len(INTEGERS)]]
}


def sources() -> list[Source]:
    made = []
    for at, (probe, values) in enumerate(PROBES.items()):
        envelope = Envelope(
            f"probe/{at}/1", Measured.type, f"probe/{at}", datetime(2026, 1, 1, tzinfo=UTC), {"probe": probe, **values},
            data_version=1, sequence=1,
        )  # fmt: skip
        made.append(Source(envelope, Position(0, at), 1_767_225_600_000, encode(envelope).decode()))
    return made


def expected(probe: str, values: Mapping[str, Any]) -> dict[str, Any]:
    number, real = values["number"], values["real"] + 0.0
    shown: dict[str, Any] = {"probe": probe}
    for name in FOLDS:
        for field, value in (("number", number), ("real", real)):
            shown[f"{name}_{field}"] = [value] if name == "all" else value
    mean = number / -1 + 0.0
    return {**shown, "parts": [{"probe": probe, "real": real}], "sum": number, "mean": mean}


def texts(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {key: orjson.dumps(dict(row), option=orjson.OPT_SORT_KEYS).decode() for key, row in sorted(rows.items())}


@pytest.mark.parametrize("engine", ["live", "bulk"])
def test_a_number_is_the_same_wherever_it_comes_from(engine: str, server: Server) -> None:
    wanted = texts({probe: expected(probe, values) for probe, values in PROBES.items()})
    if engine == "live":
        target, store = created(server, VIEW), server.open()
        patches = [patch for source in sources() for patch in lift(VIEW, source)]
        # as records of `patches` have them
        sent = [patch._replace(fields=json.loads(orjson.dumps(patch.fields))) for patch in patches]
        store.apply([target], {0: Batch(len(sent), {VIEW.tag: sent})})
    else:
        target, store = Target(VIEW, 1), server.open()
        store.create(target, {}, START)
        (folded,) = folder_of(VIEW, sources()).views
        unfit: set[str] = set()
        store.bulk_writer(target).write(batches(compiled(VIEW), folded.drain().items(), unfit))
        assert not unfit
        store.finish(target)
        store.publish(target)
    assert texts(server.rows(VIEW)) == wanted
