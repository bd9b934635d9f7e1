"""Topics: creates missing ones and checks the others, before anything is appended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.eventlog.errors import LogUnavailable, ResealUnfinished, TopicMismatch
from headwater.eventlog.kafka.client import client_config
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import (
    COMPACTION_LAG,
    FOR_EVER,
    RESEALED,
    RESEALING,
    RETENTION,
    RETENTION_BYTES,
    UNLIMITED,
    TopicSpec,
    merged_topics,
    topic_specs,
)

TIMEOUT_S = 30.0
ANSWER_S = 5.0
"""How long a request may take on which an answer of the API depends."""
GLANCE_S = 2.0
"""How long a start may wait for an answer that it can do without."""
ABSENT_CODES = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
REFUSED_CODES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""Errors that no retry fixes: the settings of this client or of the broker are wrong."""
NEVER = ((RETENTION, FOR_EVER), (RETENTION_BYTES, UNLIMITED))
"""Settings that delete records if a topic has another value; they are altered."""
FORBIDDEN_CODES = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


def prepare(settings: LogSettings, others: Sequence[TopicSpec] = ()) -> str:
    """Create the deployment's missing topics, check the others, and return Kafka's cluster id.

    A topic that keeps erased records longer than COMPACTION_LAG allows is altered; one that removes them sooner is not.
    So is one that deletes records because of its size, or that should keep them for ever.

    others: topics in addition to the deployment's own.

    Raises TopicMismatch if a topic has other partitions or settings than Headwater needs, ResealUnfinished, and
    LogUnavailable.
    """
    # Kafka's client crashes if a topic is named twice
    client = prepare_topics(settings, merged_topics([*topic_specs(settings), *others]))
    try:
        cluster_id: str = client.describe_cluster(request_timeout=TIMEOUT_S).result().cluster_id
    except KafkaException as error:
        raise LogUnavailable("preparing the topics", error.args[0].str()) from error
    return cluster_id


def prepare_topics(settings: LogSettings, specs: Sequence[TopicSpec]) -> AdminClient:
    """Create and check these topics as `prepare` does, and return the client that did it."""
    client = _reached(settings)
    try:
        # one that is being copied may be missing, and must not be made anew
        names = [settings.topic(spec.name) for spec in specs if spec.name in RESEALED]
        _refuse_copied(client.list_topics(timeout=TIMEOUT_S).topics, names)
        _create(client, settings, specs)
        _check_partitions(client, settings, specs)
        _check_settings(client, settings, specs)
    except KafkaException as error:
        raise LogUnavailable("preparing the topics", error.args[0].str()) from error
    return client


def existing_topics(settings: LogSettings) -> set[str]:
    """The full names of the topics that this account sees; raises LogUnavailable."""
    try:
        return {*_reached(settings).list_topics(timeout=TIMEOUT_S).topics}
    except KafkaException as error:
        raise LogUnavailable("listing the topics", error.args[0].str()) from error


def missing_topics(settings: LogSettings, specs: Sequence[TopicSpec]) -> list[str]:
    """The full names of those of these topics that do not exist; raises LogUnavailable."""
    existing = existing_topics(settings)
    return [settings.topic(spec.name) for spec in specs if settings.topic(spec.name) not in existing]


def check_resealed(settings: LogSettings) -> None:
    """Raise ResealUnfinished if a topic of the deployment is being copied.

    If Kafka does not answer within GLANCE_S, it is not known, and nothing is raised.
    """
    client = _client(settings)
    try:
        existing = client.list_topics(timeout=GLANCE_S).topics
    except KafkaException:
        return
    _refuse_copied(existing, map(settings.topic, sorted(RESEALED)))


def topic_id(settings: LogSettings, topic: str, client: AdminClient | None = None) -> str:
    """Kafka's id of the topic, which changes if it is deleted and created again.

    client: one that is connected already. Raises LogUnavailable, and ResealUnfinished.
    """
    name = settings.topic(topic)
    names = [name, *([name + RESEALING] if topic in RESEALED else [])]
    asked = client or _client(settings)  # its requests end with it

    def ask() -> str:
        described = asked.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
        for copy in names[1:]:
            if described[copy].exception() is None:
                raise ResealUnfinished(name)
        return str(described[name].result().topic_id)

    try:
        return _of_existing(ask, ANSWER_S)
    except KafkaException as error:
        raise LogUnavailable(f'asking for the id of "{topic}"', error.args[0].str()) from error


def ends(settings: LogSettings, names: Sequence[str], partition: int) -> tuple[dict[str, int], dict[str, int]]:
    """By topic, the end of `partition` for readers of committed records, and its real end; raises LogUnavailable."""
    places = {(settings.topic(name), partition): name for name in names}
    client = _client(settings)
    end_offsets = []
    try:
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            at = offsets(client, places, OffsetSpec.latest(), TIMEOUT_S, level)  # type: ignore[no-untyped-call]
            end_offsets.append({places[place]: offset for place, offset in at.items()})
    except KafkaException as error:
        raise LogUnavailable("asking for the ends of partitions", error.args[0].str()) from error
    return end_offsets[0], end_offsets[1]


def offsets(
    client: AdminClient,
    places: Iterable[tuple[str, int]],
    spec: OffsetSpec,
    timeout_s: float,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[tuple[str, int], int]:
    """The first or last offset of each partition, by the topic's full name and partition; raises KafkaException."""
    requests = {TopicPartition(topic, partition): spec for topic, partition in places}
    answers = client.list_offsets(requests, isolation_level=level, request_timeout=timeout_s)
    return {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}


def stored_ends(client: AdminClient, name: str) -> dict[int, int]:
    """The high watermark of each partition of a topic, by its full name; empty if there is none.

    Raises KafkaException.
    """
    try:
        described = client.describe_topics(TopicCollection([name]), request_timeout=ANSWER_S)[name].result()
    except KafkaException as error:
        if error.args[0].code() in ABSENT_CODES:
            return {}
        raise
    places = [(name, partition.id) for partition in described.partitions]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    end_offsets = offsets(client, places, latest, ANSWER_S, IsolationLevel.READ_UNCOMMITTED)
    return {partition: offset for (_, partition), offset in end_offsets.items()}


def remove(settings: LogSettings) -> None:
    """Delete the deployment's topics with all their records; for tests."""
    remove_topics(settings, topic_specs(settings))


def remove_topics(settings: LogSettings, specs: Sequence[TopicSpec]) -> None:
    """Delete those of these topics that exist, with all their records; raises LogUnavailable."""
    client = _client(settings)
    names = [settings.topic(spec.name) for spec in specs]
    for future in client.delete_topics(names, operation_timeout=TIMEOUT_S).values():
        error = future.exception()
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            continue
        if error is not None:
            raise LogUnavailable("deleting the topics", str(error)) from error


def empty_partition(settings: LogSettings, spec: TopicSpec, partition: int) -> None:
    """Delete all records of a partition of a topic, if it exists; later records have higher offsets.

    Raises LogUnavailable.
    """
    if missing_topics(settings, [spec]):
        return
    place = TopicPartition(settings.topic(spec.name), partition, OFFSET_END)
    client = _client(settings)  # its requests end with it
    try:
        client.delete_records([place], request_timeout=TIMEOUT_S)[place].result()
    except KafkaException as error:
        raise LogUnavailable(f'emptying "{spec.name}"', error.args[0].str()) from error


def _client(settings: LogSettings, **config: Any) -> AdminClient:
    # creating topics takes longer than any other request
    return AdminClient(client_config(settings, **{"socket.timeout.ms": 60_000}, **config))


def _reached(settings: LogSettings) -> AdminClient:
    """A client that Kafka has answered; raises LogUnavailable with the reason, at once if Kafka refused the client."""
    errors: list[KafkaError] = []
    client = _client(settings, error_cb=errors.append)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            client.list_topics(timeout=1.0)
        except KafkaException as error:
            client.poll(0)  # calls error_cb
            reasons = [error for error in errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
            refusals = [
                reason for reason in reasons if reason.code() in REFUSED_CODES or "SSL routines" in reason.str()
            ]
            if refusals or time.monotonic() > deadline:
                reason = [error.args[0], *reasons, *refusals][-1].str()
                doing = f"reaching Kafka at {settings.bootstrap} by {settings.security.protocol}"
                raise LogUnavailable(doing, reason) from error
        else:
            return client


def _refuse_copied(existing: Container[str], names: Iterable[str]) -> None:
    for name in names:
        if name + RESEALING in existing:
            raise ResealUnfinished(name)


def _create(client: AdminClient, settings: LogSettings, specs: Sequence[TopicSpec]) -> None:
    existing = client.list_topics(timeout=TIMEOUT_S).topics
    absent = [
        NewTopic(settings.topic(spec.name), spec.partitions, settings.replication, config=dict(spec.settings))
        for spec in specs
        if settings.topic(spec.name) not in existing
    ]
    if not absent:
        return
    for future in client.create_topics(absent, operation_timeout=TIMEOUT_S).values():
        error = future.exception()
        # another process may have been faster
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        if isinstance(error, KafkaException) and error.args[0].code() in FORBIDDEN_CODES:
            reason = "this user must not create them: run `headwater create` as the operator, who may; or it must not "
            raise LogUnavailable(
                "preparing the topics",
                f"{', '.join(topic.topic for topic in absent)} are missing, and {reason}see them",
            )
        if error is not None:
            raise error


def _check_partitions(client: AdminClient, settings: LogSettings, specs: Sequence[TopicSpec]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    for spec in specs:
        name = settings.topic(spec.name)
        while True:
            metadata = client.list_topics(name, timeout=TIMEOUT_S).topics[name]
            if (
                metadata.error is None
                and metadata.partitions
                and all(p.leader >= 0 for p in metadata.partitions.values())
            ):
                break
            if time.monotonic() > deadline:
                raise LogUnavailable("preparing the topics", f'"{name}" has no leader')
            time.sleep(0.05)  # a new topic has no leader yet
        if len(metadata.partitions) != spec.partitions:
            raise TopicMismatch(name, "partitions", str(spec.partitions), str(len(metadata.partitions)))


def _of_existing(ask: Callable[[], Answer], timeout_s: float) -> Answer:
    """The answer of `ask` about topics that exist.

    It is repeated while the broker that happens to be asked has not learned of a new topic: brokers do not do so at
    the same time. Raises KafkaException.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in ABSENT_CODES or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def _check_settings(client: AdminClient, settings: LogSettings, specs: Sequence[TopicSpec]) -> None:
    topics = [ConfigResource(ResourceType.TOPIC, settings.topic(spec.name)) for spec in specs]

    def ask() -> dict[str, dict[str, str]]:
        answers = client.describe_configs(topics, request_timeout=TIMEOUT_S)
        return {
            topic.name: {entry.name: str(entry.value) for entry in answer.result().values()}
            for topic, answer in answers.items()
        }

    described = _of_existing(ask, TIMEOUT_S)
    for spec in specs:
        actual = described[settings.topic(spec.name)]
        for setting, expected in spec.settings.items():
            actual_value = actual[setting]
            erases_late = setting == COMPACTION_LAG and int(actual_value) > int(expected)
            deletes = actual_value != expected and (setting, expected) in NEVER
            if erases_late or deletes:
                _alter(client, settings.topic(spec.name), setting, expected, actual_value)
            elif setting != COMPACTION_LAG and set(actual_value.split(",")) != set(expected.split(",")):
                raise TopicMismatch(settings.topic(spec.name), setting, expected, actual_value)


def _alter(client: AdminClient, topic: str, setting: str, expected: str, actual: str) -> None:
    """Change one setting of a topic; raises TopicMismatch with instructions if this client is not allowed to."""
    entry = ConfigEntry(setting, expected, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    try:
        for future in client.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
            future.result()
    except KafkaException as error:
        if error.args[0].code() in FORBIDDEN_CODES:
            raise TopicMismatch(topic, setting, expected, actual) from error
        raise
    logger.info('topic "%s": changed %s to %s; it was %s', topic, setting, expected, actual)
