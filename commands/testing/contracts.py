"""Tests that every aggregate and every event must pass, for pytest; needs the extra `testing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.commands.codec import fold, read_event, read_snapshot, write_snapshot
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.golden_files import GoldenFiles
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.commands.handling.batch import Batch
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.receipt import Receipt
from headwater.commands.testing.canaries import no_report_is_in_clear, nothing_is_in_clear
from headwater.commands.testing.drawing import bodies, histories
from headwater.commands.testing.past import aggregate_of
from headwater.eventlog.envelope import Envelope, decode, encode, stream_name
from headwater.eventlog.ports import Record

TIME: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

Checked = Callable[..., None]


def contracts_of(*modules: str, golden: Path | None = None) -> type:
    """A class of tests for all aggregates and events that `modules` declare.

        TestContracts = contracts_of("bank.domain")

    With random commands, the tests check that each command is accepted or rejected, that a retry adds nothing, that
    the size of batches makes no difference, and that events and states are read back unchanged. For every version of
    every event they check that it has a golden file, and that the file is read as the current version. If a field is
    personal, commands with values that appear nowhere else go through every aggregate, and their events through every
    process: nothing that is stored or logged has one. So do observations with personal fields.

    modules: as in HEADWATER_MODULES; sub-modules are included. golden: the folder of the golden files; None: `golden/`
    beside the module that declares the event. `headwater golden MODULE` writes the missing files. The
    hypothesis profile sets the number of random histories.

    Raises UnknownModule or ModuleBroken if a module cannot be imported, DeclarationError if a declaration is wrong, and
    ValueError if there is no aggregate, and no observation with personal fields.
    """
    registry, observations = CommandRegistry.load(modules), ObservationRegistry.load(modules)
    if not registry.aggregates and not observations.personal:
        raise ValueError(f"no aggregate in {', '.join(modules) or 'no module'}: name modules that declare aggregates")
    tests = list[Checked]()
    if registry.aggregates:
        tests += [*_of_aggregates(registry), *_of_events(registry, GoldenFiles(golden), " ".join(modules))]
    if registry.personal:
        tests.append(_of_personal_values(registry, ProcessRegistry.load(modules)))
    if observations.personal:
        tests.append(_of_personal_observations(observations))
    return type("Contracts", (), {test.__name__: staticmethod(test) for test in tests})


def _thoroughly(test: Checked) -> Checked:
    # the profile that the user's tests load sets the number of examples
    relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    return relaxed(given(data=st.data())(test))


# Aggregates


def _of_aggregates(registry: CommandRegistry) -> Sequence[Checked]:
    every = pytest.mark.parametrize("aggregate", registry.aggregates.values(), ids=registry.aggregates)

    def test_every_command_is_accepted_or_rejected_and_versions_have_no_gap(
        aggregate: AnyAggregate, data: st.DataObject
    ) -> None:
        every_command_is_answered(registry, records(aggregate, data.draw(histories(aggregate))))

    def test_a_retry_of_everything_adds_nothing(aggregate: AnyAggregate, data: st.DataObject) -> None:
        store, commands = MemoryStore(), records(aggregate, data.draw(histories(aggregate)))
        _, first = run(registry, store, commands)
        again, receipts = run(registry, store, commands)
        assert again.entries == []
        assert receipts == first

    def test_the_size_of_batches_makes_no_difference(aggregate: AnyAggregate, data: st.DataObject) -> None:
        commands = records(aggregate, data.draw(histories(aggregate)))
        whole, _ = run(registry, MemoryStore(), commands)
        store = MemoryStore()
        one_by_one = [entry for record in commands for entry in run(registry, store, [record])[0].events]
        assert one_by_one == whole.events

    def test_events_are_read_back_as_decided_and_a_snapshot_and_its_tail_are_the_whole_fold(
        aggregate: AnyAggregate, data: st.DataObject
    ) -> None:
        all_is_read_back(registry, aggregate, records(aggregate, data.draw(histories(aggregate, streams=1))))

    tests = (
        test_every_command_is_accepted_or_rejected_and_versions_have_no_gap,
        test_a_retry_of_everything_adds_nothing,
        test_the_size_of_batches_makes_no_difference,
        test_events_are_read_back_as_decided_and_a_snapshot_and_its_tail_are_the_whole_fold,
    )
    return [every(_thoroughly(test)) for test in tests]


def _of_personal_values(registry: CommandRegistry, processes: ProcessRegistry) -> Checked:
    personal = [aggregate for name, aggregate in registry.aggregates.items() if name in registry.personal]

    @pytest.mark.parametrize("aggregate", personal, ids=[person.name for person in personal])
    def test_no_personal_value_is_stored_or_logged(aggregate: AnyAggregate, data: st.DataObject) -> None:
        nothing_is_in_clear(registry, processes, data.draw(histories(aggregate, streams=1)))

    return _thoroughly(test_no_personal_value_is_stored_or_logged)


def _of_personal_observations(registry: ObservationRegistry) -> Checked:
    @pytest.mark.parametrize("name", sorted(registry.personal))
    def test_no_personal_value_of_an_observation_is_stored_or_logged(name: str, data: st.DataObject) -> None:
        kind = registry.types[name]
        no_report_is_in_clear(registry, kind, data.draw(st.lists(bodies(kind, (), 0), min_size=1, max_size=25)))

    return _thoroughly(test_no_personal_value_of_an_observation_is_stored_or_logged)


def records(aggregate: AnyAggregate, history: Sequence[tuple[str, dict[str, Any]]]) -> list[Record]:
    """Records of `commands` for (command type, body), a second apart."""
    entries = []
    for number, (command_type, body) in enumerate(history):
        stream = stream_name(aggregate.name, aggregate.identity.of_data(body))
        envelope = Envelope(f"c{number}", command_type, stream, TIME + timedelta(seconds=number), body)
        entries.append(Record("commands", 0, number, stream, encode(envelope), 0))
    return entries


def run(registry: CommandRegistry, store: MemoryStore, commands: Sequence[Record]) -> tuple[Batch, dict[str, Receipt]]:
    """Decide commands with the snapshots and receipts of `store`, and add the new ones to it."""
    batch = Handler(registry, 0, 1, store).decide(commands, 0)
    receipts = batch.receipts(range(len(batch.entries)))
    store.apply(batch.snapshots, receipts, {})
    return batch, {key: Receipt.from_json(value or b"") for key, value in receipts.items()}


def every_command_is_answered(registry: CommandRegistry, commands: Sequence[Record]) -> None:
    """Raises AssertionError if a command fails, or if versions have a gap."""
    batch, receipts = run(registry, MemoryStore(), commands)
    for receipt in receipts.values():
        assert receipt.outcome in ("accepted", "rejected"), f"{receipt.type} {receipt.outcome}: {receipt.error}"
        assert (receipt.outcome == "rejected") == (receipt.error is not None)
    assert batch.dead_letters == []
    versions: dict[str, int] = {}
    for entry in batch.events:
        stream, _, version = entry.key.rpartition("/")
        assert int(version) == versions.get(stream, 0) + 1
        versions[stream] = int(version)
    for receipt in receipts.values():
        assert receipt.version <= versions.get(receipt.stream, 0)


def all_is_read_back(registry: CommandRegistry, aggregate: AnyAggregate, commands: Sequence[Record]) -> None:
    """Raises AssertionError if a snapshot at any version and the events after it fold to another state."""
    store, stream = MemoryStore(), commands[0].key
    batch, _ = run(registry, store, commands)
    envelopes = [decode(entry.value) for entry in batch.events]
    for envelope in envelopes:
        assert stream_name(aggregate.name, aggregate.identity.of(read_event(aggregate, envelope))) == stream
    state, version = fold(aggregate, envelopes)
    assert version == len(envelopes)
    for cut in range(1, len(envelopes)):
        snapshot = write_snapshot(aggregate, *fold(aggregate, envelopes[:cut]))
        assert fold(aggregate, envelopes[cut:], *read_snapshot(aggregate, snapshot)) == (state, version)
    kept = store.snapshot(stream)
    assert (kept is None) == (envelopes == [])
    if kept is not None:
        assert read_snapshot(aggregate, kept) == (state, version)


# Events


def _of_events(registry: CommandRegistry, files: GoldenFiles, modules: str) -> Sequence[Checked]:
    released = [(event, version) for event in registry.events.values() for version in range(1, event.version + 1)]

    def every(some: Sequence[tuple[type[Event], int]]) -> pytest.MarkDecorator:
        return pytest.mark.parametrize(
            ("event", "version"), some, ids=[f"{event.type}-{version}" for event, version in some]
        )

    @every(released)
    def test_every_released_version_is_kept_readable(event: type[Event], version: int) -> None:
        golden_file_is_read(files, event, version, f"`headwater golden {modules}` writes it")

    @pytest.mark.parametrize("event", registry.events.values(), ids=registry.events)
    def test_no_golden_file_is_of_a_version_that_is_not_declared(event: type[Event]) -> None:
        declared = set(range(1, event.version + 1))
        assert files.versions(event) <= declared, (
            f"{event.type} went back to version {event.version}: keep the later versions, because they were released"
        )

    return [
        test_every_released_version_is_kept_readable,
        test_no_golden_file_is_of_a_version_that_is_not_declared,
    ]


def read(event: type[Event], version: int, data: Any) -> Event:
    """Data of an older version, read as the current event; raises UnreadableEvent."""
    aggregate = aggregate_of(event)
    stream = f"{aggregate.name}/A"
    recorded_as = event.history.type_of(version)
    return read_event(aggregate, Envelope(f"{stream}/1", recorded_as, stream, TIME, data, data_version=version))


def golden_file_is_read(files: GoldenFiles, event: type[Event], version: int, how: str) -> None:
    """Raises AssertionError if the golden file is missing, or is read as other data; how: to write a missing one."""
    assert files.path(event, version).exists(), f"{event.type} has no golden file of version {version}: {how}"
    recorded = files.read(event, version)
    current = read(event, version, recorded)
    if version == event.version:
        again = orjson.loads(current.model_dump_json(by_alias=True))
        assert again == recorded, f"{event.type} changed: raise its version, and describe the change in its history"
    else:
        later = event.history.upcast(version, recorded, until=version + 1)
        assert later == files.read(event, version + 1), (
            f"upcast({version}, …) of {event.type} changed: declare it as it was released"
        )
