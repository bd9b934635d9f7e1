"""Every topic of a deployment, whoever uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.reacting.outbox import outbox_role, outbox_topics
from headwater.commands.reacting.row_router import process_topics, row_role
from headwater.eventlog.access import Program
from headwater.eventlog.capturing.declaring import Source, SourceRegistry
from headwater.eventlog.capturing.naming import followed_topic, source_topics
from headwater.eventlog.ports import HANDLER, PROCESSES, ROUTER, Role
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import AUDIT, TopicSpec, merged_topics, topic_specs, view_topic
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.declared import Topic
from headwater.projections.stores.topic.records import published_topic
from headwater.projections.view import View


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
        return frozenset(each.name for each in topic_specs(self.settings))

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
        return [each for each in self.sources.values() if each.outbox]

    def _topics(self) -> Iterator[TopicSpec]:
        own = topic_specs(self.settings)
        yield from own
        if self.has_personal:
            yield from (each.written_by(Program.API) for each in own if each.name == AUDIT)
        yield from process_topics(self.settings, self.processes)
        yield from outbox_topics(self.settings, self._outboxes)
        for source in self.sources.values():
            yield from source_topics(source, self.settings)
        for table in self.views.tables:
            yield followed_topic(table, self.settings)
        for view in self.published:
            yield from (published_topic(self.settings), view_topic(view.name, self.settings))
