"""What an event's fields were before a step of its history, from what they are after it: the checks of a history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from headwater.commands.declaring.field_paths import ITEMS, Path, path_of, place_of, scoped
from headwater.commands.declaring.lineage_values import fits
from headwater.commands.declaring.shapes import UNKNOWN, Shape, Shapes, object_of
from headwater.commands.declaring.steps import Convert, Default, Drop, Move, Rename, RenameType, Split, Step, name_of


def undo(step: Step, fields: dict[str, Shape]) -> None:
    """Replace the fields after a step by those before it; raises ValueError if the step is impossible."""
    scope, own = scoped(step)
    if not scope:
        _Undoing(fields, ()).undo(own)
    else:
        fields[scope[0]] = _within(_child(fields, scope, 1, is_open=False), scope, 1, own)


def at(fields: Shapes, path: Path) -> Shape | None:
    """What is at a place; None if nothing is known to be there. ITEMS are the items of a list."""
    found: Shape | None = None
    for name in path:
        if name == ITEMS:
            found = found.items() if found is not None and found.items is not None else None
        else:
            known = fields if found is None else found.fields() if found.fields is not None else {}
            found = known.get(name)
        if found is None:
            return None
    return found


def _within(shape: Shape, scope: Path, known: int, step: Step) -> Shape:
    """The shape at the first `known` parts of a scope, before a step inside it."""
    if shape.is_personal:
        raise ValueError(_sealed(place_of(scope[:known])))
    is_open = shape.kind is None
    if known < len(scope) and scope[known] == ITEMS:
        if shape.items is None and not is_open:
            raise ValueError(_no_items(scope[:known], shape))
        items = _within(UNKNOWN if shape.items is None else shape.items(), scope, known + 1, step)
        return replace(shape, items=lambda: items)
    fields = _fields(shape, scope[:known])
    if known == len(scope):
        _Undoing(fields, scope, is_open=is_open).undo(step)
    else:
        child = _child(fields, scope, known + 1, is_open=is_open)
        fields[scope[known]] = _within(child, scope, known + 1, step)
    return object_of(fields, shape)


def _child(fields: Shapes, scope: Path, known: int, *, is_open: bool) -> Shape:
    """The shape at the first `known` parts of a scope. is_open: there may be fields that are not known."""
    found = fields.get(scope[known - 1], UNKNOWN if is_open else None)
    if found is None:
        raise ValueError(
            f'it is about "{place_of(scope[:known])}", which the next version does not have; '
            f"it has {_quoted(fields, scope[: known - 1])}"
        )
    return found


def _fields(shape: Shape, path: Path) -> dict[str, Shape]:
    """The fields inside a nested model; those of a field that was dropped later are not known."""
    if shape.fields is not None:
        return dict(shape.fields())
    if shape.kind is None:
        return {}
    place = place_of(path)
    if shape.items is not None:
        raise ValueError(f'"{place}" is a list: write "{place}[].name" for a field of its items')
    raise ValueError(
        f'"{place}" holds a {name_of(shape.kind)}, which has no fields that are known here: declare it as one '
        "pydantic model, above the event"
    )


def _no_items(path: Path, shape: Shape) -> str:
    place = place_of(path)
    if shape.fields is not None:
        return f'"{place}" is no list: write "{place}.name" for a field of it'
    return f'"{place}" is no list of pydantic models that is known here: declare it so, above the event'


class _Undoing:
    """Undoes a step in the event itself, or in a nested model at `scope`.

    is_open: there may be fields that are not known, because the model was dropped later.
    """

    def __init__(self, fields: dict[str, Shape], scope: Path, *, is_open: bool = False) -> None:
        self._fields, self._scope, self._is_open = fields, scope, is_open

    def undo(self, step: Step) -> None:
        match step:
            case Rename():
                shape = self._take(step.new, "renames to")
                self._add(step.old, shape, "renames from")
            case Move():
                self._undo_move(path_of(step.old), path_of(step.new))
            case Default():
                self._check_default(step, self._take(step.field, "adds"))
            case Drop():
                self._add(step.field, UNKNOWN, "drops")
            case Convert():
                shape = self._take(step.field, "converts")
                if shape.is_personal:
                    raise ValueError(_sealed(self._place(step.field)))
                try:
                    kind = step.how.source(shape.kind)
                except ValueError as error:
                    raise ValueError(f'"{self._place(step.field)}": {error}, which the next version has') from error
                self._fields[step.field] = Shape(kind, shape.nullable)
            case Split():
                self._undo_split(step)
            case RenameType():
                pass
            case _:
                assert_never(step)

    def _undo_split(self, step: Split) -> None:
        if not step.at or len(step.into) < 2:
            raise ValueError(f'the split of "{self._place(step.field)}" needs a separator and at least two names')
        for name in step.into:
            shape = self._take(name, "splits into")
            if shape.is_personal:
                raise ValueError(_sealed(self._place(name)))
            if shape.kind not in (str, None):
                raise ValueError(f'a split gives texts, but "{self._place(name)}" holds a {name_of(shape.kind)}')
        self._add(step.field, Shape(str), "splits")

    def _undo_move(self, old: Path, new: Path) -> None:
        self._add_inside(old, self._take_inside(new))

    def _take_inside(self, path: Path) -> Shape:
        """Take what is at a path. A nested model without further fields was made by the move."""
        name, rest = path[0], path[1:]
        if not rest:
            return self._take(name, "moves to")
        model = self._take(name, "moves into")
        inner = self._inside(name, model)
        shape = inner._take_inside(rest)
        if inner._fields or inner._is_open:
            before = object_of(inner._fields, model)
            self._fields[name] = replace(before, is_certain=bool(inner._fields))
        return shape

    def _add_inside(self, path: Path, shape: Shape) -> None:
        """Add what was at a path; there was a nested model, even if the next version does not have it."""
        name, rest = path[0], path[1:]
        if not rest:
            self._add(name, shape, "moves from")
            return
        model = self._fields.get(name, object_of({}))
        inner = self._inside(name, model)
        inner._add_inside(rest, shape)
        self._fields[name] = object_of(inner._fields, model)

    def _inside(self, name: str, model: Shape) -> _Undoing:
        scope = (*self._scope, name)
        if model.is_personal:
            raise ValueError(_sealed(place_of(scope)))
        return _Undoing(_fields(model, scope), scope, is_open=model.kind is None)

    def _check_default(self, step: Default, shape: Shape) -> None:
        place, kind = self._place(step.field), shape.kind
        if step.value is not None and kind is not None and not fits(step.value, kind):
            raise ValueError(f'"{place}" holds a {name_of(kind)}, but its default is {step.value!r}')
        if step.value is None and self._scope and not shape.nullable:
            raise ValueError(f'"{place}" must not be null, but its default is None: use another default')

    def _take(self, name: str, does: str) -> Shape:
        if name not in self._fields and not self._is_open:
            raise ValueError(
                f'it {does} "{self._place(name)}", which the next version does not have; it has '
                f"{_quoted(self._fields, self._scope)}"
            )
        return self._fields.pop(name, UNKNOWN)

    def _add(self, name: str, shape: Shape, does: str) -> None:
        if name in self._fields:
            raise ValueError(f'it {does} "{self._place(name)}", which the next version also has: rename one of them')
        self._fields[name] = shape

    def _place(self, name: str) -> str:
        return place_of((*self._scope, name))


def _sealed(place: str) -> str:
    return (
        f'"{place}" is personal, so events have a sealed text, from which nothing can be computed: use a new field, '
        "and leave the old one as it is"
    )


def _quoted(names: Iterable[str], scope: Path) -> str:
    return ", ".join(f'"{place_of((*scope, name))}"' for name in sorted(names)) or "no fields there"
