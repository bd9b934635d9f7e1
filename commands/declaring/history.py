"""The versions of an event: upcasters make the data of each version from that of the version before.

    class PriceChanged(Event, type="listing.price_changed", version=3, history=[
        upcast(1, rename("amount", "price")),
        upcast(2, to_cents, default("currency", "USD")),
    ]): ...

An upcaster is a function of the data of a version, a `dict` of JSON values that it may change, and returns the data of
the next one. `rename`, `move`, `default`, `drop`, `split` and `convert` make such functions; unlike others, they say
which fields they are about, so that views that read none of these stay as they are.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any, Final, NoReturn

from pydantic import BaseModel

from headwater.commands.declaring.personal_marks import mentions_personal
from headwater.eventlog.declaring import WrongArguments, must_be_text, must_be_texts, shown, word
from headwater.eventlog.personal.sealed_text import is_sealed

Data = dict[str, Any]
"""The fields of an event in JSON."""
Upcaster = Callable[[Data], Data]

ITEMS: Final = "[]"
"""Behind the name of a list, in the place of a field of its items."""
NO_VERSION: Final = 'has no "dataversion": it must be an integer of at least 1'
TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
"""Types of commands and events: the name of the aggregate, and a name of their own."""
EXAMPLE: Final = 'history=[upcast(1, rename("amount", "cents"))]'


class HistoryError(ValueError):
    """A history is declared wrongly; the message says where, and what to do."""


@dataclass(frozen=True)
class Step:
    """An upcaster made by a word such as `rename`.

    text: how it is declared. fields: of the event that it is about. how: the user's function in it, if there is one.
    """

    text: str
    fields: frozenset[str]
    function: Upcaster = field(compare=False)
    how: Callable[[Any], Any] | None = field(default=None, compare=False)

    def __call__(self, data: Data) -> Data:
        return self.function(data)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Upcast:
    """What makes the next version of `version`, see `upcast`."""

    version: int
    upcasters: tuple[Upcaster, ...]
    recorded_as: str


@word('upcast(1, rename("amount", "cents"))')
def upcast(version: int, *upcasters: Upcaster, recorded_as: str = "") -> Upcast:
    """How data of `version` becomes data of the next version: by these functions, one after the other.

    upcasters: `(data: dict) -> dict`; none if only the type changed, or a field that may be null was added. Personal
    values in the data are sealed: they can be moved and dropped, and nothing else.
    recorded_as: the type under which this version was recorded, and those before it unless they say otherwise; empty:
    that of the next version.
    """
    return Upcast(version, upcasters, recorded_as)


@word('rename("amount", "cents")')
def rename(old: str, new: str) -> Step:
    """The field `old` is now called `new`: `rename("lines[].qty", "lines[].quantity")`."""
    around, was = _place("the old name of rename()", old, 'rename("amount", "cents")')
    beside, name = _place("the new name of rename()", new, 'rename("amount", "cents")')
    if around != beside:
        raise WrongArguments(f'rename(): "{new}" is not beside "{old}": write move("{old}", "{new}")')

    def renamed(data: Data) -> Data:
        for obj in _objects(data, around):
            if was in obj:
                obj[name] = obj.pop(was)
        return data

    return Step(f"rename({old!r}, {new!r})", _tops(old, new), renamed)


@word('move("city", "address.city")')
def move(old: str, new: str) -> Step:
    """The field `old` is now in another place: in a nested model, which is made if it is not there, or out of one."""
    around, was = _place("the old place of move()", old, 'move("city", "address.city")')
    into, name = _place("the new place of move()", new, 'move("city", "address.city")')
    common = _common(around, into)
    if any(step.endswith(ITEMS) for step in (*around[len(common) :], *into[len(common) :])):
        raise WrongArguments(
            f'move("{old}", "{new}") leads into or out of the items of a list, of which there may be none or many: '
            "write a function for it"
        )

    def moved(data: Data) -> Data:
        for obj in _objects(data, common):
            for holder in _objects(obj, around[len(common) :]):
                if was in holder:
                    _made(obj, into[len(common) :])[name] = holder.pop(was)
        return data

    return Step(f"move({old!r}, {new!r})", _tops(old, new), moved)


@word('default("currency", "USD")')
def default(field: str, value: Any) -> Step:
    """`field` was added; older events get this `value` (in JSON types)."""
    around, name = _place("the field of default()", field, 'default("currency", "USD")')

    def completed(data: Data) -> Data:
        for obj in _objects(data, around):
            obj.setdefault(name, copy.deepcopy(value))
        return data

    return Step(f"default({field!r}, {value!r})", _tops(field), completed)


@word('drop("note")')
def drop(field: str) -> Step:
    """`field` was removed."""
    around, name = _place("the field of drop()", field, 'drop("note")')

    def dropped(data: Data) -> Data:
        for obj in _objects(data, around):
            obj.pop(name, None)
        return data

    return Step(f"drop({field!r})", _tops(field), dropped)


@word('convert("pieces", int)')
def convert(field: str, how: Callable[[Any], Any]) -> Step:
    """`field` now has another type or unit: `how` makes its value of the one before. Null stays null."""
    around, name = _place("the field of convert()", field, 'convert("pieces", int)')
    if not callable(how):
        raise WrongArguments(
            f'convert("{field}", …) is given {shown(how)}, which is no function: write int, or your own'
        )

    def converted(data: Data) -> Data:
        for obj in _objects(data, around):
            if obj.get(name) is not None:
                obj[name] = how(obj[name])
        return data

    return Step(f"convert({field!r}, {_name(how)})", _tops(field), converted, how)


@word('split("name", into=("first", "last"), at=" ")')
def split(field: str, into: Sequence[str], at: str) -> Step:
    """The text `field` was split into several fields at `at`; the last one gets the rest, missing parts are empty."""
    example = 'split("name", into=("first", "last"), at=" ")'
    around, name = _place("the field of split()", field, example)
    with _named():
        must_be_texts("into of split()", into, example)
        must_be_text("at of split()", at, example)
    if len(into) < 2:
        raise WrongArguments(f"split() has one name in into: write {example}")

    def parted(data: Data) -> Data:
        for obj in _objects(data, around):
            if name in obj:
                text = obj.pop(name)
                parts = [None] * len(into) if text is None else text.split(at, len(into) - 1)
                obj.update(zip(into, [*parts, *[""] * (len(into) - len(parts))], strict=True))
        return data

    own = frozenset() if around else frozenset(into)
    return Step(f"split({field!r}, into={tuple(into)!r}, at={at!r})", _tops(field) | own, parted)


@contextmanager
def _named() -> Iterator[None]:
    """What checks find wrong with the arguments of a word."""
    try:
        yield
    except ValueError as error:
        raise WrongArguments(str(error)) from error


def _place(what: str, place: str, example: str) -> tuple[tuple[str, ...], str]:
    """The names that lead to the object with a field, those of lists with ITEMS, and the name of the field."""
    with _named():
        must_be_text(what, place, example)
    *around, name = place.split(".")
    if not all(step.replace(ITEMS, "") for step in around) or not name or ITEMS in name:
        raise WrongArguments(f'"{place}" is no place of a field: write it like "address.zip" or "lines[].price"')
    return tuple(around), name


def _tops(*places: str) -> frozenset[str]:
    return frozenset(place.partition(".")[0].replace(ITEMS, "") for place in places)


def _common(one: Sequence[str], other: Sequence[str]) -> Sequence[str]:
    """What both have at their beginning, up to the last list."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[: max((at + 1 for at in range(same) if one[at].endswith(ITEMS)), default=0)]


def _objects(value: Any, path: Sequence[str]) -> Iterator[Data]:
    """The objects at a place; none where it is null or missing. Raises ValueError if it has something else."""
    if value is None:
        return
    if not path:
        if not isinstance(value, dict):
            raise ValueError("a nested model is not an object")
        yield value
        return
    if not isinstance(value, dict):
        raise ValueError(f'what should have "{path[0]}" is not an object')
    found = [value.get(path[0].replace(ITEMS, ""))]
    for _ in range(path[0].count(ITEMS)):
        if not all(isinstance(item, list) for item in found if item is not None):
            raise ValueError(f'"{path[0].replace(ITEMS, "")}" is not a list')
        found = [item for values in found if values is not None for item in values]
    for values in found:
        yield from _objects(values, path[1:])


def _made(data: Data, path: Sequence[str]) -> Data:
    """The object at a place, made with those around it if it is null or missing."""
    for name in path:
        if data.get(name) is None:
            data[name] = {}
        data = data[name]
    return data


class History:
    """The versions of one event; made with the event's class."""

    def __init__(
        self, version: int, changes: Sequence[Upcast] = (), type: str = "", event: type[BaseModel] | None = None
    ) -> None:
        """version, type: the current ones. event: the class.

        Raises HistoryError if the changes do not lead from version 1 to `version`.
        """
        self.version, self._event = version, event
        self._changes = dict[int, Upcast]()
        for change in changes:
            if change.version in self._changes:
                raise HistoryError(f"upcast({change.version}, …) appears twice: merge them")
            if not 1 <= change.version < version:
                raise HistoryError(
                    f"upcast({change.version}, …) is beyond version {version}: raise the event's version, or correct it"
                )
            self._changes[change.version] = change
        if gaps := [number for number in range(1, version) if number not in self._changes]:
            raise HistoryError(
                f"the history has no upcast({gaps[0]}, …): add it, without functions if the fields of version "
                f"{gaps[0]} did not change"
            )
        self._types = {version: type}
        for number in range(version - 1, 0, -1):
            old, new = self._changes[number].recorded_as, self._types[number + 1]
            if old == new or (old and old.partition(".")[0] != new.partition(".")[0]):
                raise HistoryError(
                    f'upcast({number}, …) has recorded_as="{old}", but the next version is "{new}": name an earlier '
                    "type of the same aggregate, or none"
                )
            self._types[number] = old or new

    @property
    def types(self) -> tuple[str, ...]:
        """The types under which the event was recorded, the first one first; nearly always its type alone."""
        return tuple(dict.fromkeys(self._types[number] for number in sorted(self._types)))

    def type_of(self, version: int) -> str:
        """The type under which a version was recorded; the current one for a version that is not known."""
        return self._types.get(version, self._types[self.version])

    @property
    def upcasters(self) -> list[tuple[int, Upcaster]]:
        """All functions, each with the version whose data it gets."""
        return [(number, upcaster) for number, change in sorted(self._changes.items()) for upcaster in change.upcasters]

    def changes(self, version: int, fields: Collection[str]) -> list[str]:
        """What happens to these current fields in data of an older version; empty if they are as they were recorded.

        A function of the user's may change any field.
        """
        changes_found, read = list[str](), set(fields)
        for number in range(self.version - 1, version - 1, -1):
            for upcaster in reversed(self._changes[number].upcasters):
                own = upcaster.fields if isinstance(upcaster, Step) else None
                if read and (own is None or own & read):
                    changes_found.append(repr(upcaster) if isinstance(upcaster, Step) else "a function")
                    read |= own or set()
        return changes_found[::-1]

    def changed(self, fields: Collection[str]) -> frozenset[int]:
        """The older versions that recorded some of these current fields in another way."""
        return frozenset(number for number in range(1, self.version) if self.changes(number, fields))

    def upcast(self, version: int, data: Mapping[str, Any], until: int | None = None) -> Data:
        """The data of an older version in the form of the current version (or of the version `until`).

        `data` stays as it is. Raises ValueError if an upcaster fails; the message names it, and has no personal values.
        """
        sealed = list[_Sealed]()
        made = _own(data, sealed)
        for number in range(version, until or self.version):
            for upcaster in self._changes[number].upcasters:
                try:
                    made = upcaster(made)
                except Exception as error:
                    raise ValueError(self._failed(number, upcaster, error, is_sealed=bool(sealed))) from error
                if not isinstance(made, dict):
                    raise ValueError(f"{_described(number, upcaster)} returned {shown(made)}: return the data")
        data_now: Data = _with_texts(made) if sealed else made
        try:
            json.dumps(data_now)
        except TypeError as error:
            raise ValueError(
                f"{_described(version, *self._changes[version].upcasters)} made no JSON: {error}"
            ) from error
        return data_now

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By reference to the event, as classes are pickled, if its module can be imported; else by value."""
        event = self._event
        if event is not None and _imported(event.__module__, event.__qualname__) is event:
            return _Elsewhere, (event.__module__, event.__qualname__)
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_is_personal": self._is_personal, "_event": None}

    def _failed(self, version: int, upcaster: Upcaster, error: Exception, *, is_sealed: bool) -> str:
        text = f"{_described(version, upcaster)} failed: {type(error).__name__}"
        if not self._is_personal:  # else the text of the error may have a plaintext value
            text += f": {error}"
        return text + (f" ({_Sealed.RULE})" if is_sealed else "")

    @cached_property
    def _is_personal(self) -> bool:
        return self._event is not None and mentions_personal(self._event)


class _Elsewhere(History):
    """The history of an event that is declared in a module; that is imported when the first older event comes."""

    def __init__(self, module: str, name: str) -> None:
        self._place = module, name

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _Elsewhere, self._place

    def upcast(self, version: int, data: Mapping[str, Any], until: int | None = None) -> Data:
        """See History.upcast. Raises ImportError if the module is not there."""
        data_now: Data = _imported(*self._place).history.upcast(version, data, until)
        return data_now


@lru_cache(maxsize=1_000)
def _imported(module: str, name: str) -> Any:
    """What a module defines by this name; None if it is not at its top level, or in a class there."""
    try:
        return attrgetter(name)(import_module(module))
    except AttributeError:
        return None


class _Sealed:
    """A personal value in the data of an older version. An upcaster that does more than move it fails."""

    RULE: Final = "personal values are sealed: an upcaster can move and drop them, but not read them"

    def __init__(self, text: str) -> None:
        self.text = text

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(self.RULE)

    __str__ = __format__ = __eq__ = __bool__ = __hash__ = _refuse

    def __repr__(self) -> str:
        return "<an encrypted value>"


def _own(value: Any, sealed: list[_Sealed]) -> Any:
    """A copy for upcasters, in which ciphertexts cannot be taken for others; those are added to `sealed`."""
    match value:
        case dict():
            return {name: _own(item, sealed) for name, item in value.items()}
        case list():
            return [_own(item, sealed) for item in value]
        case str() if is_sealed(value):
            sealed.append(_Sealed(value))
            return sealed[-1]
    return value


def _with_texts(value: Any) -> Any:
    match value:
        case dict():
            return {name: _with_texts(item) for name, item in value.items()}
        case list() | tuple():
            return [_with_texts(item) for item in value]
        case _Sealed():
            return value.text
    return value


def version_problem(event_type: str, found: int, known: int) -> str | None:
    """Why an event of the version `found` cannot be read if `known` is the current version; None if it can."""
    if found < 1:
        return f'"{event_type}" {NO_VERSION}'
    if found > known:
        return f'"{event_type}" has version {found}, {newer_version(known)}'
    return None


def newer_version(known: int) -> str:
    """The message for an event of a newer version."""
    return f"but the newest known here is {known}: it was written by a newer version of the code, deploy that here too"


def check_history(history: object) -> None:
    """Raise ValueError unless it is a list or tuple of what `upcast` makes, of functions."""
    if isinstance(history, Upcast):
        raise ValueError(f"history is one upcast: write it as a list, as in {EXAMPLE}")
    if not isinstance(history, list | tuple):
        raise ValueError(f"history is {shown(history)}, which is no list of upcasts: write {EXAMPLE}")
    for change in history:
        if not isinstance(change, Upcast):
            raise ValueError(f"history has {shown(change)} without its version: write {EXAMPLE}")
        if type(change.version) is not int:
            raise ValueError(f"upcast({shown(change.version)}, …) names no version: write {EXAMPLE}")
        for upcaster in change.upcasters:
            if not callable(upcaster):
                raise ValueError(
                    f"upcast({change.version}, …) has {shown(upcaster)}, which is no function: write {EXAMPLE}"
                )
        old = change.recorded_as
        if old != "" and not (isinstance(old, str) and TYPE_NAME.fullmatch(old)):
            raise ValueError(
                f"upcast({change.version}, …) has recorded_as={shown(old)}, which is no type of a message: write it "
                'like recorded_as="house.purchased"'
            )


def _described(version: int, *upcasters: Upcaster) -> str:
    return f"upcast({', '.join([str(version), *map(_name, upcasters)])})"


def _name(function: Callable[..., Any]) -> str:
    return repr(function) if isinstance(function, Step) else getattr(function, "__name__", type(function).__name__)
