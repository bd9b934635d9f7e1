"""One of several rows that an event changes: `by_key(Transferred, "from_account")`."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.view_rows import ViewRow
from headwater.eventlog.declaring import must_be_text, must_be_texts, shown
from headwater.projections.table.declared import storage_word
from headwater.projections.table.mistaken import in_views
from headwater.projections.table.rows import is_row, is_row_class


@storage_word("ByKey")
@dataclass(frozen=True, slots=True)
class ByKey:
    """The event, for the row that one of its keys names. key: the name of the field, or of several. See `by_key`."""

    event: type[Event]
    key: str | tuple[str, ...]

    def __str__(self) -> str:
        names = [f'"{name}"' for name in ([self.key] if isinstance(self.key, str) else self.key)]
        key = names[0] if isinstance(self.key, str) else f"({', '.join(names)})"
        return f"by_key({getattr(self.event, 'type', self.event.__name__)}, {key})"


@in_views('by_key(Transferred, "from_account")')
def by_key(event: type[Event], key: str | tuple[str, ...]) -> ByKey:
    """An event as it changes one of its rows, in a view in which it changes several.

    Stands in place of the event in folds, `deleted_by`, `restored_by` and `where`, and counts only for the row that the
    field `key` names, as in `add({by_key(Transferred, "from_account"): negative("cents")})`. The event itself counts
    for each of its rows. key: one of those that the view's `key` lists for the event.
    """
    if is_row(event) or is_row_class(event):
        table = event.table if is_row(event) else event
        what = "a row of a view" if issubclass(table, ViewRow) else "a captured row"
        raise ValueError(f"is given {shown(event)}, but a change of {what} changes one row only")
    if not (isinstance(event, type) and issubclass(event, Event) and hasattr(event, "type")):
        raise ValueError(f"is given {shown(event)}, which is no class of events with a type")
    if isinstance(key, tuple):
        must_be_texts("key", key, "the names of its fields")
    else:
        must_be_text("key", key, "the name of a field")
    return ByKey(event, key)
