"""What each program needs of Kafka: rules that follow from a deployment's topics, roles and views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from headwater.eventlog.access import (
    CHECK,
    DELETE,
    JOIN,
    LOOK_UP,
    MAKE,
    READ,
    REMAKE,
    WRITE,
    Program,
    Resource,
    Rule,
    account,
)
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.sweeping import SWEEPS, watch_group
from headwater.eventlog.kafka.client import READERS
from headwater.eventlog.topics import RESEALED, RESEALING, VIEWS
from headwater.projections.loading.patch_reader import LOADERS
from headwater.projections.running_parts import LIVE
from headwater.replay.topics import Declared


def rules_of(declared: Declared) -> dict[str, list[Rule]]:
    """The rules of each account that the deployment needs, by its name."""
    environment = declared.settings.environment
    return {
        account(environment, program): [*_of_topics(declared, program), *more(declared)]
        for program, more in OTHERS.items()
        if declared.sources or program not in CAPTURING
    }


def _of_topics(declared: Declared, program: Program) -> Iterator[Rule]:
    for spec in declared.topics:
        name = declared.settings.topic(spec.name)
        if program in spec.readers:
            yield Rule(Resource.TOPIC, name, READ)
        if program in spec.writers:
            yield Rule(Resource.TOPIC, name, WRITE)
        if spec.name in RESEALED and program in spec.readers | spec.writers:
            yield Rule(Resource.TOPIC, name + RESEALING, LOOK_UP)  # while it is there, the topic may be incomplete


def _of_api(declared: Declared) -> Iterator[Rule]:
    yield _readers(declared)
    if declared.published:  # the console shows how far generations in topics are
        yield Rule(Resource.TOPIC, declared.settings.topic(VIEWS), READ, is_prefix=True)


def _of_handler(declared: Declared) -> Iterator[Rule]:
    yield _readers(declared)
    yield from _checked(declared, Program.HANDLER)
    for role in declared.roles:
        name = f"{declared.settings.environment}.{role.name}"
        yield Rule(Resource.GROUP, name, JOIN)
        yield Rule(Resource.TRANSACTIONS, f"{name}.", WRITE, is_prefix=True)


def _of_projections(declared: Declared) -> Iterator[Rule]:
    yield _readers(declared)
    yield from _checked(declared, Program.PROJECTIONS)
    yield Rule(Resource.GROUP, f"{declared.settings.environment}.{LIVE}", JOIN)  # it shows how far the live query is
    yield from _of_generations(declared)


def _of_operator(declared: Declared) -> Iterator[Rule]:
    yield _readers(declared)
    yield Rule(Resource.TOPIC, declared.settings.topic(""), MAKE, is_prefix=True)
    yield from _of_generations(declared)


def _of_sources(declared: Declared) -> Iterator[Rule]:
    yield _readers(declared)
    for source in declared.sources.values():
        names = SourceNames.of(source, declared.settings.environment)
        yield Rule(Resource.TOPIC, names.topic(""), MAKE | DELETE, is_prefix=True)
        yield Rule(Resource.GROUP, watch_group(names), JOIN)
    yield Rule(Resource.TRANSACTIONS, f"{declared.settings.environment}.{SWEEPS}.", WRITE, is_prefix=True)


def _of_connect(declared: Declared) -> Iterator[Rule]:
    """Its workers' own topics and group are named in their configuration, and are not known here."""
    for source in declared.sources.values():
        names = SourceNames.of(source, declared.settings.environment)
        yield Rule(Resource.GROUP, names.connector, JOIN)


def _of_generations(declared: Declared) -> Iterator[Rule]:
    """Loaders, and the topics of single generations, which are made and removed."""
    environment = declared.settings.environment
    yield Rule(Resource.GROUP, f"{environment}.{LOADERS}.", JOIN, is_prefix=True)
    if declared.published:
        yield Rule(Resource.TOPIC, declared.settings.topic(VIEWS), REMAKE, is_prefix=True)
        yield Rule(Resource.TRANSACTIONS, declared.settings.topic(VIEWS), WRITE, is_prefix=True)


def _readers(declared: Declared) -> Rule:
    return Rule(Resource.GROUP, f"{declared.settings.environment}.{READERS}", LOOK_UP)


def _checked(declared: Declared, program: Program) -> Iterator[Rule]:
    """At its start, a program compares the deployment's own topics, and others that it uses, with what is needed."""
    for spec in declared.topics:
        if spec.name in declared.own or program in spec.readers | spec.writers:
            yield Rule(Resource.TOPIC, declared.settings.topic(spec.name), CHECK)


OTHERS: Final[Mapping[Program, Callable[[Declared], Iterator[Rule]]]] = {
    Program.API: _of_api,
    Program.HANDLER: _of_handler,
    Program.PROJECTIONS: _of_projections,
    Program.OPERATOR: _of_operator,
    Program.SOURCES: _of_sources,
    Program.CONNECT: _of_connect,
}
"""What programs need beside the topics that they read and write."""
CAPTURING: Final = frozenset({Program.SOURCES, Program.CONNECT})
"""Programs of captured databases."""
