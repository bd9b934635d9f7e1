"""The read side on a Spark cluster and three brokers, of which one each is lost."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from headwater.commands.sending.recorder import ObservationRecorder
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import decode
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.backoff import Backoff
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import OBSERVATIONS
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.loading.loader import Loader
from headwater.projections.reading.reader import fold
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.session import SparkSettings, lazy_session
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.store import Target
from headwater.projections.supervision.process import ProcessSpec
from headwater.projections.supervision.supervised import Supervisor
from headwater.projections.table.expressions import Source
from headwater.projections.testing.contracts import history
from tests.contracts.opened_stores import OnPostgres
from tests.contracts.view_histories import some_folds
from tests.integration.cluster import far_gates
from tests.integration.cluster.far_gates import gates
from tests.integration.cluster.machines import BOUND_S, Machines, append_once, machines, read_again
from tests.support.background import running
from tests.support.logged import logged
from tests.support.observed import LATE_AFTER, REGISTRY, Report, rows_in_python
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.jvm, pytest.mark.xdist_group("a whole read side")]

MODULE = "tests.integration.cluster.test_many_machines"
VIEW = replace(some_folds("far_apart", "group"), stores=(Postgres(),))
OTHER = replace(some_folds("far_away", "thing_id"), stores=(Postgres(),))
"""It is rebuilt in the same pass."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.timeout(3600)
def test_a_view_with_state_is_right_when_a_worker_is_lost(
    cluster: Machines, stack: StackSettings, tmp_path: Path
) -> None:
    """The workers share the folder with the state. It comes first: the other test needs the two that are left."""
    settings = LogSettings("far_gates", cluster.bootstrap, partitions=2, replication=3, state=tmp_path / "driver")
    stores = StoreSettings(settings.environment, stack.endpoints.postgres, patch_partitions=settings.patch_partitions)
    variables = _variables(cluster, settings, stores) | {"HEADWATER_MODULES": far_gates.__name__}
    shared = {"HEADWATER_CHECKPOINTS": str(tmp_path / "shared")}
    command = [sys.executable, "-m", "headwater.replay", "rebuild", gates.name]
    admin.prepare(settings)
    log, generations = KafkaLog(settings), Generations(stores.postgres, settings.environment)
    with OnPostgres(stores) as server:
        generations.prepare()
        _report(log, range(100))
        refused = subprocess.run(command, env=os.environ | variables, timeout=BOUND_S, capture_output=True, text=True)
        assert "HEADWATER_CHECKPOINTS" in refused.stderr
        subprocess.run(command, env=os.environ | variables | shared, timeout=BOUND_S, check=True)
        target = Target(gates, generations.live()[gates.name].generation)
        streams = _supervised("headwater.projections", "streams", settings, variables | shared)
        with streams, running(Loader(server.open(), lambda: [target], settings).run):
            _report(log, range(100, 200))
            eventually(lambda: _counts(server) == read_again(partial(_expected, log)), "the rows", BOUND_S)
            cluster.kill("worker-3")
            _report(log, range(200, 300))
            eventually(lambda: _counts(server) == read_again(partial(_expected, log)), "the rows", BOUND_S)
        assert [generation.generation for generation in generations.all()] == [target.generation], (
            "it was not computed again"
        )
        assert not list(settings.state.rglob("*.changelog"))
        assert list((tmp_path / "shared").rglob("*.changelog"))
    log.close()


@pytest.mark.timeout(3600)
def test_views_are_right_when_a_broker_and_a_worker_are_lost(
    cluster: Machines, stack: StackSettings, tmp_path: Path
) -> None:
    settings = LogSettings("far_apart", cluster.bootstrap, partitions=2, replication=3, state=tmp_path)
    stores = StoreSettings(settings.environment, stack.endpoints.postgres, patch_partitions=settings.patch_partitions)
    admin.prepare(settings)
    log, sources = KafkaLog(settings), _sources(settings)
    generations = Generations(stores.postgres, settings.environment)
    with OnPostgres(stores) as server:
        generations.prepare()
        _begin(settings, stores, log)
        target = Target(VIEW, generations.live()[VIEW.name].generation)
        live = _supervised(MODULE, "live", settings, _variables(cluster, settings, stores))
        with live, running(Loader(server.open(), lambda: [target], settings).run):
            append_once(log, sources[:200])
            eventually(lambda: server.rows(VIEW) == fold(VIEW, read_again(partial(logged, log))), "the rows", BOUND_S)
            cluster.kill("kafka-2")
            cluster.kill("worker-1")
            append_once(log, sources[200:])
            eventually(lambda: server.rows(VIEW) == fold(VIEW, read_again(partial(logged, log))), "the rows", BOUND_S)

        _rebuild(cluster, settings, stores)
        assert generations.live()[VIEW.name].generation == target.generation + 1
        for view in (VIEW, OTHER):
            assert server.rows(view) == fold(view, read_again(partial(logged, log))), view.name
    log.close()


def _report(log: KafkaLog, numbers: range) -> None:
    """Append observations, some of them too late."""
    now, chance, made = datetime.now(UTC), random.Random(numbers.start), []
    for number in numbers:
        time = now - timedelta(seconds=chance.choice((0, 1, 60, 590, 700, 3_600)))
        data = {"gate": chance.choice("ab"), "weight": chance.randrange(9)}
        document = {"id": str(number), "source": f"s{number % 5}", "time": time.isoformat(), "data": data}
        made.append(REGISTRY.read("passed", orjson.dumps(document)))
    asyncio.run(ObservationRecorder(log).record(made))


def _expected(log: KafkaLog) -> dict[str, tuple[int, int]]:
    """What Python makes of the observations in the log."""
    found: list[Report] = []
    for partition in range(log.partitions):
        for record in log.read(OBSERVATIONS, partition, 0):
            if not is_heartbeat_key(record.key):
                envelope, time = decode(record.value), datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
                data, recorded = envelope.data, envelope.recorded_time
                assert recorded is not None
                found.append(Report(len(found), data["gate"], data["weight"], time, recorded))
    return rows_in_python(found, LATE_AFTER)


def _counts(server: OnPostgres) -> dict[str, tuple[int, int]]:
    return {key: (row["number"], row["weight"]) for key, row in server.rows(gates).items()}


def main(part: str) -> None:
    """One part of the read side, on the cluster, in a process with a session of its own."""
    settings = LogSettings.from_environment(os.environ)
    {"live": _live_query, "rebuild": _rebuild_once}[part](settings, SparkSettings.from_environment(os.environ))


def _live_query(settings: LogSettings, spark: SparkSettings) -> None:
    """The live query of the view, as `headwater projections live` runs it."""
    from headwater.projections.spark.live import SPARE_THREADS, run_live
    from headwater.projections.spark.session import start_session

    session = start_session(spark, name="live", threads=settings.partitions + SPARE_THREADS)
    run_live(session, [VIEW], settings, checkpoint=settings.state.absolute() / "checkpoint")


def _rebuild_once(settings: LogSettings, spark: SparkSettings) -> None:
    """A rebuild of the views, as `replay rebuild` does it."""
    stores = StoreSettings.from_environment(os.environ)
    log, generations = KafkaLog(settings), Generations(stores.postgres, settings.environment)
    with closing(log), lazy_session(spark, name="bulk", threads=2) as session:
        engine = new_engine(settings, log, session, EngineChoice.SPARK)
        rebuilder = Rebuilder(settings, stores, log, generations, engine, SparkQueries(settings, session))
        for _, outcome in rebuilder.rebuild_all([VIEW, OTHER]):
            if isinstance(outcome, Exception):
                raise outcome


def _sources(settings: LogSettings) -> list[Source]:
    made = history(VIEW, list(VIEW.plan.events.values()), 5, length=600).sources
    return [each for each in made if each.position.partition < settings.partitions]


def _begin(settings: LogSettings, stores: StoreSettings, log: KafkaLog) -> None:
    """First generations of the views, of an empty log, without Spark."""
    engine = new_engine(settings, log, _no_session, EngineChoice.LOCAL)
    generations = Generations(stores.postgres, settings.environment)
    rebuilder = Rebuilder(settings, stores, log, generations, engine, SparkQueries(settings, _no_session))
    for view in (VIEW, OTHER):
        rebuilder.rebuild(view)


def _no_session() -> SparkSession:
    raise AssertionError("a session would take a minute to start")


def _rebuild(cluster: Machines, settings: LogSettings, stores: StoreSettings) -> None:
    command = [sys.executable, "-m", MODULE, "rebuild"]
    done = subprocess.run(command, env=os.environ | _variables(cluster, settings, stores), timeout=BOUND_S)
    assert done.returncode == 0


def _variables(cluster: Machines, settings: LogSettings, stores: StoreSettings) -> dict[str, str]:
    return {
        "SPARK_MASTER": cluster.master,
        "HEADWATER_SPARK_MEMORY": "600m",
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_MODULES": "listings",
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_POSTGRES": stores.postgres,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_REPLICATION": str(settings.replication),
        "HEADWATER_STATE": str(settings.state),
    }


@contextmanager
def _supervised(module: str, part: str, settings: LogSettings, variables: Mapping[str, str]) -> Iterator[None]:
    """A part of the read side, started again when it dies, as its supervisor does."""
    spec = ProcessSpec(
        name=part,
        argv=(sys.executable, "-m", module, part),
        log=settings.state / f"{part}.log",
        probe=lambda: None,
        env=variables,
    )
    supervisor = Supervisor([spec], Backoff(limit=1000))
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()


if __name__ == "__main__":
    main(sys.argv[1])
