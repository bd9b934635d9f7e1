"""`headwater grants`: the accounts and rights that each program of a deployment needs in each server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.reacting.outbox import outbox_role, outbox_topics
from headwater.commands.reacting.row_router import process_topics, row_role
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
    commands_of,
)
from headwater.eventlog.capturing.declaring import Source, SourceRegistry
from headwater.eventlog.capturing.naming import SourceNames, followed_topic, source_topics
from headwater.eventlog.capturing.sweeping import SWEEPS, watch_group
from headwater.eventlog.kafka.client import READERS
from headwater.eventlog.ports import HANDLER, PROCESSES, ROUTER, Role
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import (
    AUDIT,
    RESEALED,
    RESEALING,
    VIEWS,
    TopicSpec,
    merged_topics,
    topic_specs,
    view_topic,
)
from headwater.projections.loading.patch_reader import LOADERS
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import LIVE
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import STORES, Topic
from headwater.projections.stores.open import backend
from headwater.projections.stores.topic.records import published_topic
from headwater.projections.view import View
from headwater.replay.verbs import OnlyCommand


@dataclass(frozen=True)
class Declared:
    """What a deployment declares that has topics of its own. sources: by name.

    has_personal: whether a field is personal, so that its API erases persons.
    """

    settings: LogSettings
    processes: ProcessRegistry
    sources: Mapping[str, Source]
    views: ViewRegistry
    has_personal: bool = False

    @classmethod
    def load(cls, settings: LogSettings, views: ViewRegistry) -> Declared:
        """What the modules of `settings` declare."""
        modules = settings.modules
        has_personal = bool(CommandRegistry.load(modules).personal or ObservationRegistry.load(modules).personal)
        return cls(settings, ProcessRegistry.load(modules), SourceRegistry.load(modules).sources, views, has_personal)

    @property
    def topics(self) -> list[TopicSpec]:
        """The topics, except those of single generations of views."""
        return merged_topics(self._topics())

    @property
    def own(self) -> frozenset[str]:
        """The names of those that every deployment has."""
        return frozenset(spec.name for spec in topic_specs(self.settings))

    @property
    def roles(self) -> list[Role]:
        """Those of the handler: each is a group, with transactions of its own."""
        rows = [row_role(topic, self.settings.patch_partitions) for topic in self.processes.by_topic]
        reacting = [ROUTER, PROCESSES, *rows] if self.processes.processes else []
        return [HANDLER, *reacting, *map(outbox_role, self._outboxes)]

    @property
    def published(self) -> list[View]:
        """The views that are topics."""
        return self.views.in_store(Topic.name)

    @property
    def _outboxes(self) -> list[Source]:
        return [source for source in self.sources.values() if source.outbox]

    def _topics(self) -> Iterator[TopicSpec]:
        own = topic_specs(self.settings)
        yield from own
        if self.has_personal:  # the log says which store of keys is theirs, and which keys were destroyed
            (audit,) = (topic for topic in own if topic.name == AUDIT)
            yield (
                audit.written_by(Program.API)
                .written_by(Program.HANDLER)
                .read_by(Program.HANDLER)
                .read_by(Program.PROJECTIONS)
            )
        yield from process_topics(self.settings, self.processes)
        yield from outbox_topics(self.settings, self._outboxes)
        for source in self.sources.values():
            yield from source_topics(source, self.settings)
        for table in self.views.tables:
            yield followed_topic(table, self.settings)
        for view in self.published:
            yield from (published_topic(self.settings), view_topic(view.name, self.settings))


def rules_of(declared: Declared) -> dict[str, list[Rule]]:
    """The rules of each account that the deployment needs, by its name."""
    environment = declared.settings.environment
    return {
        account(environment, program): [*_topic_rules(declared, program), *_other_rules(declared, program)]
        for program in RULED
        if declared.sources or program not in CAPTURING
    }


def _topic_rules(declared: Declared, program: Program) -> Iterator[Rule]:
    """What a program reads and writes, and what it compares at its start with what is needed."""
    compares = program in (Program.HANDLER, Program.PROJECTIONS)
    for spec in declared.topics:
        name, is_used = declared.settings.topic(spec.name), program in spec.readers | spec.writers
        if program in spec.readers:
            yield Rule(Resource.TOPIC, name, READ)
        if program in spec.writers:
            yield Rule(Resource.TOPIC, name, WRITE)
        if spec.name in RESEALED and is_used:
            yield Rule(Resource.TOPIC, name + RESEALING, LOOK_UP)  # while it is there, the topic may be incomplete
        if compares and (spec.name in declared.own or is_used):
            yield Rule(Resource.TOPIC, name, CHECK)


def _other_rules(declared: Declared, program: Program) -> Iterator[Rule]:
    """What a program joins, makes and looks up."""
    settings, environment = declared.settings, declared.settings.environment
    sources = [SourceNames.of(source, environment) for source in declared.sources.values()]
    if program is Program.CONNECT:
        # its workers' own topics and group are named in their configuration, and are not known here
        yield from (Rule(Resource.GROUP, names.connector, JOIN) for names in sources)
        return
    yield Rule(Resource.GROUP, f"{environment}.{READERS}", LOOK_UP)
    match program:
        case Program.API if declared.published:  # the console shows how far generations in topics are
            yield Rule(Resource.TOPIC, settings.topic(VIEWS), READ, is_prefix=True)
        case Program.HANDLER:
            for role in declared.roles:
                yield Rule(Resource.GROUP, f"{environment}.{role.name}", JOIN)
                yield Rule(Resource.TRANSACTIONS, f"{environment}.{role.name}.", WRITE, is_prefix=True)
        case Program.PROJECTIONS:  # it shows how far the live query is
            yield Rule(Resource.GROUP, f"{environment}.{LIVE}", JOIN)
        case Program.OPERATOR:
            yield Rule(Resource.TOPIC, settings.topic(""), MAKE, is_prefix=True)
        case Program.SOURCES:
            for names in sources:
                yield Rule(Resource.TOPIC, names.topic(""), MAKE | DELETE, is_prefix=True)
                yield Rule(Resource.GROUP, watch_group(names), JOIN)
            yield Rule(Resource.TRANSACTIONS, f"{environment}.{SWEEPS}.", WRITE, is_prefix=True)
    if program in (Program.PROJECTIONS, Program.OPERATOR):
        # loaders, and the topics of single generations, which are made and removed
        yield Rule(Resource.GROUP, f"{environment}.{LOADERS}.", JOIN, is_prefix=True)
        if declared.published:
            yield Rule(Resource.TOPIC, settings.topic(VIEWS), REMAKE, is_prefix=True)
            yield Rule(Resource.TRANSACTIONS, settings.topic(VIEWS), WRITE, is_prefix=True)


CAPTURING: Final = (Program.SOURCES, Program.CONNECT)
"""Programs of captured databases."""
RULED: Final = (Program.API, Program.HANDLER, Program.PROJECTIONS, Program.OPERATOR, *CAPTURING)


KAFKA: Final = "kafka"
STORES_WITH_ACCOUNTS: Final = tuple(name for name in STORES if backend(name).grants is not None)
SERVERS: Final = (KAFKA, *STORES_WITH_ACCOUNTS)
HEADS: Final[Mapping[str, str]] = {
    KAFKA: "for a shell: KAFKA is a broker's address, KAFKA_ADMIN a file of a client's settings",
    "postgres": "for psql",
    "elasticsearch": "for Kibana's console",
    "valkey": "for valkey-cli",
}
EPILOG: Final = "Settings are environment variables; docs/security.md has the steps, under Least privilege."
For = Annotated[str, typer.Option("--for", metavar="SERVER", help=f"Only for one of {', '.join(SERVERS)}.")]

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(cls=OnlyCommand, epilog=EPILOG)
def grants(server: For = "") -> None:
    """Print what gives the API, the handler, the read side and the operator the rights that they need, and no others.

    It depends on the modules, and changes nothing. Run it again after a deployment of new views, processes or sources.
    """
    log_to_stderr(os.environ, "grants", default="WARNING")
    if server and server not in SERVERS:
        raise typer.BadParameter(f'unknown server "{server}": use one of {", ".join(SERVERS)}', param_hint="--for")
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    declared = Declared.load(settings, ViewRegistry.load(settings.modules))
    if server:
        print(statements(server, declared, stores), end="")
        return
    print("\n".join(f"# {kind}, {HEADS[kind]}\n{statements(kind, declared, stores)}" for kind in SERVERS), end="")


def statements(server: str, declared: Declared, stores: StoreSettings) -> str:
    """What the tool of a server takes."""
    if server == KAFKA:
        return "".join(f"{line}\n" for line in commands_of(rules_of(declared)))
    of_store = backend(server).grants
    return of_store(stores) if of_store else ""


def main() -> None:
    """Run the command line."""
    typer.main.get_command(app)(prog_name=called_as())
