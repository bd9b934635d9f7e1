"""How a field of the current version of an event is made from what an older version recorded: its lineage.

`lineage_values.py` applies lineages in Python, and `projections/spark/lineage_sql.py` compiles them for Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from headwater.commands.declaring.steps import (
    Conversion,
    Kind,
    Parsed,
    Recoded,
    Rounded,
    Scaled,
    Widened,
    Written,
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded field with this name: of the event, or of the object that Changed changes."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value for a field that was not recorded."""

    value: Any


@dataclass(frozen=True, slots=True)
class Converted:
    """`of`, of the kind `source`, converted."""

    of: Lineage
    how: Conversion
    source: Kind


@dataclass(frozen=True, slots=True)
class Part:
    """One part, by number, of the text `of`, split into at most `parts` parts."""

    of: Lineage
    at: str
    number: int
    parts: int


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing: the field is not there."""


@dataclass(frozen=True, slots=True)
class ItemItself:
    """The item that Items goes through."""


@dataclass(frozen=True, slots=True)
class Member:
    """The field with this name of the object `of`; null if that is null, and not recorded if it is not.

    Make it with `member`.
    """

    of: Lineage
    name: str


@dataclass(frozen=True, slots=True)
class Into:
    """Values for fields of a nested model, and for those of models inside it. nullable: whether it may be null."""

    fields: tuple[tuple[str, Lineage | Into], ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class With:
    """The object `of` with values in some fields, each unless it was not recorded.

    They make the objects that are not there, except that one which may be null is null if all values in it are. So the
    values that one version brings (`version`) belong together. Make it with `with_value`.
    """

    of: Lineage
    into: Into
    version: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The object `of`, in which these fields are other ones, made from those of the object; the others are unchanged.

    Null stays null. Make it with `changed`.
    """

    of: Lineage
    fields: tuple[tuple[str, Lineage], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """The list `of`, each item made from the item before; null stays null. Make it with `items`."""

    of: Lineage
    each: Lineage


Lineage = Recorded | Constant | Converted | Part | Gone | ItemItself | Member | With | Changed | Items


def member(of: Lineage, name: str) -> Lineage:
    """Member, of the object before the change if the field is the same there."""
    if isinstance(of, Changed):
        lineage = dict(of.fields).get(name, Recorded(name))
        if isinstance(lineage, Recorded):
            return member(of.of, lineage.name)
    return Member(of, name)


def with_value(of: Lineage, path: Sequence[str], value: Lineage, nullable: Sequence[bool], version: int) -> With:
    """With, also of the values that the version has brought before.

    nullable: of the object, and of those inside it on the path.
    """
    if isinstance(of, With) and of.version == version:
        return With(of.of, _into(of.into, path, value, nullable), version)
    return With(of, _into(None, path, value, nullable), version)


def _into(before: Into | None, path: Sequence[str], value: Lineage, nullable: Sequence[bool]) -> Into:
    fields = {} if before is None else dict(before.fields)
    name, inner = path[0], fields.get(path[0])
    if len(path) > 1:
        fields[name] = _into(inner if isinstance(inner, Into) else None, path[1:], value, nullable[1:])
    else:
        fields[name] = value
    return Into(tuple(fields.items()), nullable[0])


def leaves(into: Into) -> list[Lineage]:
    """The values that are put into the fields, in their order."""
    return [leaf for _, each in into.fields for leaf in (leaves(each) if isinstance(each, Into) else [each])]


def changed(of: Lineage, fields: Mapping[str, Lineage]) -> Lineage:
    """Changed, in one even if `of` is changed itself; `of` if nothing changes."""
    if isinstance(of, Changed):
        before = dict(of.fields)
        made = {name: _replaced(lineage, before, ItemItself()) for name, lineage in fields.items()}
        return changed(of.of, {name: each for name, each in before.items() if name not in made} | made)
    others = tuple((name, lineage) for name, lineage in fields.items() if lineage != Recorded(name))
    return Changed(of, others) if others else of


def items(of: Lineage, each: Lineage) -> Lineage:
    """Items, in one even if `of` are items themselves; `of` if nothing changes."""
    if isinstance(of, Items):
        return items(of.of, _replaced(each, {}, of.each))
    return of if each == ItemItself() else Items(of, each)


def _replaced(lineage: Lineage, fields: Mapping[str, Lineage], item: Lineage) -> Lineage:
    """The lineage with others for fields that it starts from, and for the item."""
    match lineage:
        case Recorded():
            return fields.get(lineage.name, lineage)
        case Constant() | Gone():
            return lineage
        case ItemItself():
            return item
        case Converted() | Part():
            return replace(lineage, of=_replaced(lineage.of, fields, item))
        case Member():
            return member(_replaced(lineage.of, fields, item), lineage.name)
        case With():
            of, into = _replaced(lineage.of, fields, item), _into_replaced(lineage.into, fields, item)
            return With(of, into, lineage.version)
        case Changed():  # what is inside starts from the object
            return changed(_replaced(lineage.of, fields, item), dict(lineage.fields))
        case Items():
            return items(_replaced(lineage.of, fields, item), lineage.each)
        case _:
            assert_never(lineage)


def _into_replaced(into: Into, fields: Mapping[str, Lineage], item: Lineage) -> Into:
    made = (
        (name, _into_replaced(each, fields, item) if isinstance(each, Into) else _replaced(each, fields, item))
        for name, each in into.fields
    )
    return Into(tuple(made), into.nullable)


def lineage_text(lineage: Lineage) -> str:
    """The lineage of a field in the fingerprints of views; it must not depend on names of classes."""
    match lineage:
        case Recorded():
            return f"Recorded(name={lineage.name!r})"
        case Constant():
            return f"Constant(value={lineage.value!r})"
        case Converted():
            how = _conversion_text(lineage.how)
            return f"Converted(of={lineage_text(lineage.of)}, how={how}, source={lineage.source!r})"
        case Part():
            of = lineage_text(lineage.of)
            return f"Part(of={of}, at={lineage.at!r}, number={lineage.number!r}, parts={lineage.parts!r})"
        case Gone():
            return "Gone()"
        case ItemItself():
            return "Item()"
        case Member():
            return f"Member(of={lineage_text(lineage.of)}, name={lineage.name!r})"
        case With():
            return f"With(of={lineage_text(lineage.of)}, {_into_text(lineage.into)})"
        case Changed():
            return f"Changed(of={lineage_text(lineage.of)}, fields={_fields_text(lineage.fields)})"
        case Items():
            return f"Items(of={lineage_text(lineage.of)}, each={lineage_text(lineage.each)})"
        case _:
            assert_never(lineage)


def _into_text(into: Into) -> str:
    return f"fields={_fields_text(into.fields)}, nullable={into.nullable!r}"


def _fields_text(fields: Sequence[tuple[str, Lineage | Into]]) -> str:
    texts = (
        f"{name!r}: {f'Into({_into_text(each)})' if isinstance(each, Into) else lineage_text(each)}"
        for name, each in fields
    )
    return f"{{{', '.join(texts)}}}"


def only(lineage: Lineage, read: Collection[str]) -> Lineage:
    """The lineage of a list of which only these fields of the items are read: the same if none of them changed."""
    if not isinstance(lineage, Items) or not isinstance(lineage.each, Changed):
        return lineage
    fields = {name: each for name, each in lineage.each.fields if name in read}
    return items(only(lineage.of, read), changed(lineage.each.of, fields))


def recorded_path(lineage: Lineage, inside: Sequence[str] = ()) -> tuple[str, ...] | None:
    """Where a value was recorded that is, now, so far inside a field; None if it was not recorded as it is.

    Paths are of names, without marks of lists.
    """
    return _recorded_path(lineage, tuple(inside), ())


def _recorded_path(lineage: Lineage, inside: tuple[str, ...], around: tuple[str, ...]) -> tuple[str, ...] | None:
    match lineage:
        case Recorded():
            return (*around, lineage.name, *inside)
        case ItemItself():
            return (*around, *inside)
        case Member():
            return _recorded_path(lineage.of, (lineage.name, *inside), around)
        case With():
            found: Lineage | Into = lineage.into
            rest = inside
            while isinstance(found, Into) and rest and rest[0] in dict(found.fields):
                found, rest = dict(found.fields)[rest[0]], rest[1:]
            if isinstance(found, Into):
                return _recorded_path(lineage.of, inside, around)
            return _recorded_path(found, rest, around)
        case Changed():
            fields = dict(lineage.fields)
            if inside and inside[0] in fields:
                of = _recorded_path(lineage.of, (), around)
                return None if of is None else _recorded_path(fields[inside[0]], inside[1:], of)
            return _recorded_path(lineage.of, inside, around)
        case Items():
            of = _recorded_path(lineage.of, (), around)
            return None if of is None else _recorded_path(lineage.each, inside, of)
        case _:
            return None


def _conversion_text(how: Conversion) -> str:
    match how:
        case Scaled():
            return f"Scaled(by={how.by!r})"
        case Rounded():
            return f"Rounded(times={how.times!r})"
        case Parsed():
            return f"Parsed(kind={how.kind!r})"
        case Written():
            return "Written()"
        case Widened():
            return "Widened()"
        case Recoded():
            return f"Recoded(words={how.words!r})"
        case _:
            assert_never(how)
