"""All views of a deployment, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TypeVar

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.process import Process
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.capturing.declaring import Captured, SourceRegistry
from headwater.eventlog.declaring import quoted
from headwater.eventlog.places import declared_in
from headwater.eventlog.programs.modules import find
from headwater.projections.errors import UnknownView, ViewDeclarationError
from headwater.projections.kinds import KINDS
from headwater.projections.row_inputs import check_view_rows, check_views_over_views
from headwater.projections.stream.view import StreamView, late_view
from headwater.projections.table.lookups import looked_up_types
from headwater.projections.table.rows import RowClass
from headwater.projections.view import View
from headwater.projections.views import by_persons, streams

Kind = TypeVar("Kind")
SYSTEM = "headwater.projections.views"
"""The module of the view that every deployment has; the API reads from it."""


def _late_views(declared: Iterable[tuple[str, View]]) -> Iterator[tuple[str, View]]:
    """The views of late observations that `declared` has; raises ViewDeclarationError if another has such a name."""
    modules = {view.name: module for module, view in declared}
    for module, view in declared:
        late = late_view(view) if isinstance(view, StreamView) else None
        if late is None:
            continue
        if late.name in modules:
            raise ViewDeclarationError(
                late.name,
                f'declared in "{modules[late.name]}", and by late="keep" of the view "{view.name}" in "{module}": '
                f"rename one ({view.place})",
            )
        yield module, late


def _shared(aggregate: AnyAggregate, part: str) -> str:
    """Why callers that must not know of each other would share rows, and what to write."""
    return (
        f'its key has a part of the id of "{aggregate.name}" without "{part}", which the API fills with a claim: rows '
        f"of different callers would be one. Write key=({quoted(aggregate.identity.names)}), or "
        'key=envelope("stream"), key_name="stream"; if events of several aggregates meet in a row, give each a field '
        f'with "{part}", and a key with it'
    )


class ViewRegistry:
    """The views of a deployment. views: by name."""

    def __init__(self, found: Iterable[tuple[str, View]]) -> None:
        """Take (module, view) pairs.

        Raises ViewDeclarationError naming both modules if two views have the same name, or the view with an impossible
        lookup, or that reads rows of a view that there is not.
        """
        modules: dict[str, str] = {}
        views: dict[str, View] = {}
        found = list(found)
        for module, view in [*found, *_late_views(found)]:
            if view.name in views:
                raise ViewDeclarationError(
                    view.name,
                    f"{declared_in(modules[view.name], views[view.name])} and in "
                    f"{declared_in(module, view).removeprefix('declared in ')}: rename one",
                )
            modules[view.name], views[view.name] = module, view
        for view in views.values():
            try:
                looked_up_types(view, views)
            except ValueError as error:
                raise ViewDeclarationError(view.name, f"{error} ({declared_in(modules[view.name], view)})") from error
        check_views_over_views(views)
        self.views: Mapping[str, View] = MappingProxyType(views)

    @classmethod
    def load(cls, modules: Sequence[str]) -> ViewRegistry:
        """`streams` and the views of a deployment that loads `modules` (see `LogSettings.modules`).

        Raises ViewDeclarationError if a view reads an event that no aggregate in `modules` records, or a table of a
        source that is not in `modules`, and DeclarationError if a process reads rows that no view has.
        """
        commands = CommandRegistry.load(modules)
        views = [view for kind in KINDS for view in find([*modules, SYSTEM], kind)]
        if commands.personal or ObservationRegistry.load(modules).personal:
            views = [(module, by_persons(streams) if view is streams else view) for module, view in views]
        sources = SourceRegistry.load(modules).sources
        for module, view in views:
            for captured in view.classes:
                if issubclass(captured, Captured):
                    if captured.source_name not in sources:
                        raise ViewDeclarationError(
                            view.name,
                            f'reads table "{captured.table}" of the source "{captured.source_name}", which this '
                            f'deployment does not have: add the module "{captured.__module__}" to HEADWATER_MODULES '
                            f"({declared_in(module, view)})",
                        )
                elif problem := commands.why_not_recorded(captured):
                    raise ViewDeclarationError(
                        view.name, f'reads "{captured.type}"{problem} ({declared_in(module, view)})'
                    )
                else:
                    for key in view.key_fields(captured):
                        if (missing := commands.missing_part(captured, key)) is not None:
                            raise ViewDeclarationError(view.name, f"{_shared(*missing)} ({declared_in(module, view)})")
        registry = cls(views)
        for module, process in find(modules, Process):
            check_view_rows(process, module, registry.views)
        return registry

    def without(self, names: Collection[str]) -> ViewRegistry:
        """The same views, but for these: others may read their rows, which stay as they are."""
        remaining = copy(self)
        remaining.views = MappingProxyType({name: view for name, view in self.views.items() if name not in names})
        return remaining

    def view(self, name: str) -> View:
        """The view with this name; raises UnknownView."""
        view = self.views.get(name)
        if view is None:
            raise UnknownView(name, tuple(self.views))
        return view

    @property
    def keep_state(self) -> bool:
        """Whether the query of any of them has state, which a folder keeps."""
        return any(view.has_state for view in self.views.values())

    @property
    def queried(self) -> frozenset[str]:
        """The names of those with a query of their own, which may take hours to build."""
        return frozenset(name for name, view in self.views.items() if view.has_own_query)

    @property
    def rows(self) -> list[RowClass]:
        """The captured tables and views whose rows other views read; of each topic, one class."""
        return list({topic: table for view in self.views.values() for topic, table in view.tables.items()}.values())

    @property
    def tables(self) -> list[type[Captured]]:
        """The captured tables that views read."""
        return [row for row in self.rows if issubclass(row, Captured)]

    @property
    def row_views(self) -> list[str]:
        """The topics of the views whose rows other views read."""
        return [row.topic() for row in self.rows if issubclass(row, ViewRow)]

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """The views of one kind."""
        return [view for view in self.views.values() if isinstance(view, kind)]

    def in_store(self, store: str) -> list[View]:
        """The views in the store with this name."""
        return [view for view in self.views.values() if view.store(store) is not None]
