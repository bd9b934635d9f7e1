"""Traces fields through the steps of a history: what each is made from."""

from __future__ import annotations

from typing import assert_never

from headwater.commands.declaring.field_paths import ITEMS, Path, path_of, scoped
from headwater.commands.declaring.lineages import (
    Constant,
    Converted,
    Gone,
    ItemItself,
    Lineage,
    Part,
    Recorded,
    changed,
    items,
    member,
    with_value,
)
from headwater.commands.declaring.shapes import Shapes
from headwater.commands.declaring.steps import Convert, Default, Drop, Move, Rename, RenameType, Split, Step
from headwater.commands.declaring.undoing import at


def trace(step: Step, made: dict[str, Lineage], after_step: Shapes, version: int) -> None:
    """Replace the lineages of the fields before a step by those of the fields after it.

    version: the one that has the step behind it.
    """
    scope, own = scoped(step)
    if scope:
        made[scope[0]] = _within(made[scope[0]], scope, 1, own, after_step, version)
    else:
        _trace(own, made, (), after_step, version)


def _within(of: Lineage, scope: Path, known: int, step: Step, after_step: Shapes, version: int) -> Lineage:
    """The lineage of what is at the first `known` parts of a scope after a step inside it."""
    if known < len(scope) and scope[known] == ITEMS:
        return items(of, _within(ItemItself(), scope, known + 1, step, after_step, version))
    if known < len(scope):
        name = scope[known]
        return changed(of, {name: _within(Recorded(name), scope, known + 1, step, after_step, version)})
    before: dict[str, Lineage] = {name: Recorded(name) for name in _starts(step)}
    made = dict(before)
    _trace(step, made, scope, after_step, version)
    return changed(of, {name: Gone() for name in before if name not in made} | made)


def _starts(step: Step) -> list[str]:
    """The fields that a step changes, moves or removes; those that are not there have no value."""
    match step:
        case Rename():
            return [step.old]
        case Move():
            return list(dict.fromkeys((path_of(step.old)[0], path_of(step.new)[0])))
        case Drop() | Convert() | Split():
            return [step.field]
        case Default() | RenameType():
            return []
        case _:
            assert_never(step)


def _trace(step: Step, made: dict[str, Lineage], scope: Path, after_step: Shapes, version: int) -> None:
    """made: of the event's fields, or of those in the nested model at `scope`."""
    match step:
        case Rename():
            made[step.new] = made.pop(step.old)
        case Move():
            _move(path_of(step.old), path_of(step.new), made, scope, after_step, version)
        case Default():
            made[step.field] = Constant(step.value)
        case Drop():
            del made[step.field]
        case Convert():
            shape = at(after_step, (*scope, step.field))
            source = step.how.source(None if shape is None else shape.kind)
            made[step.field] = Converted(made[step.field], step.how, source)
        case Split():
            of = made.pop(step.field)
            for number, name in enumerate(step.into):
                made[name] = Part(of, step.at, number, len(step.into))
        case RenameType():
            pass
        case _:
            assert_never(step)


def _move(old: Path, new: Path, made: dict[str, Lineage], scope: Path, after_step: Shapes, version: int) -> None:
    value = made.get(old[0], Gone())
    for name in old[1:]:
        value = member(value, name)
    # with the nested models around it that the next version does not have
    gone = next((end for end in range(1, len(old)) if at(after_step, (*scope, *old[:end])) is None), len(old))
    if new != old[: len(new)]:
        _remove(made, old[:gone])
    _put(made, new, value, scope, after_step, version)


def _remove(made: dict[str, Lineage], path: Path) -> None:
    if len(path) == 1:
        made.pop(path[0], None)
    else:
        made[path[0]] = _without(made[path[0]], path[1:])


def _without(of: Lineage, path: Path) -> Lineage:
    name, rest = path[0], path[1:]
    return changed(of, {name: _without(Recorded(name), rest) if rest else Gone()})


def _put(made: dict[str, Lineage], path: Path, value: Lineage, scope: Path, after_step: Shapes, version: int) -> None:
    name, inside = path[0], path[1:]
    if not inside:
        made[name] = value
        return
    shapes = [at(after_step, (*scope, *path[:end])) for end in range(1, len(path))]
    nullable = [shape is None or shape.nullable for shape in shapes]
    made[name] = with_value(made.get(name, Gone()), inside, value, nullable, version)
