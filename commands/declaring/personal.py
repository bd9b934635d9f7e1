"""Personal fields: which values of a message or state are sealed, with whose key, and what an erasure leaves of them.

    class Registered(Event, type="customer.registered"):
        customer_id: str
        email: Annotated[str | None, Personal()]
        name: Annotated[str, Personal(erased_as="(erased)")]

In a record, a sealed text stands in place of the value; rules get the value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from commands.errors import DeclarationError
from eventlog.hidden_values import error_text
from eventlog.personal.installed import installed
from eventlog.personal.mark import PersonalMark, has_mark
from eventlog.personal.sealed_text import is_sealed

Walk = Callable[["PersonalField", Any, str], Any]
"""What a value becomes: it gets the field, the value, and the person, who is "" if that is not known."""

HIDDEN: Final = "[personal]"
"""In place of a personal text in a message of a rule."""
HIDDEN_VALUE: Final = {"hidden": "personal"}
"""In place of a personal value, for callers of the API who may not read it."""
MIN_HIDDEN_CHARACTERS: Final = 2
"""Of such a text: shorter ones are in every other word."""
_LEFT: Final[set[str]] = set()
"""Texts that are `erased_as` of any field."""
_LISTS: Final = (list, tuple, set, frozenset, Sequence)
_MAPPINGS: Final = (dict, Mapping)


@dataclass(frozen=True)
class Personal(PersonalMark):
    """Marks a field whose values are sealed with the key of a person: `email: Annotated[str | None, Personal()]`.

    of: the field with the person's id, beside this one or, in a nested model, in one around it; default: the id of the
    aggregate, or the key of the process. Ids stay in clear, so they must not say who a person is.
    erased_as: the value that rules and callers of the API get after the person was erased, in JSON types.
    """

    of: str = ""
    erased_as: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.of, str):
            raise DeclarationError(f'Personal(of={self.of!r}) names no field: write it like Personal(of="customer_id")')
        try:
            orjson.dumps(self.erased_as)
        except TypeError as error:
            raise DeclarationError(f"Personal(erased_as=…) is no value of JSON: {error}") from error


class PersonalField(NamedTuple):
    """A personal field. path: of names, from the message on; of: the field with the person, "" if it is the subject."""

    name: str
    path: str
    of: str
    erased_as: Any


class _Inner(NamedTuple):
    """A field whose value has models with personal fields. kinds: of the containers around them, such as list."""

    name: str
    kinds: tuple[str, ...]
    fields: PersonalFields


@dataclass(frozen=True, slots=True)
class PersonalFields:
    """The personal fields of a model.

    record_type: of the messages, or the name of the aggregate or process with the state. fields: of the model itself.
    inner: those with nested models that have personal fields.
    """

    record_type: str
    fields: tuple[PersonalField, ...]
    inner: tuple[_Inner, ...]

    @property
    def all(self) -> Iterator[PersonalField]:
        """Those of nested models, too."""
        yield from self.fields
        for each in self.inner:
            yield from each.fields.all

    def sealed(self, data: dict[str, Any], subject: str) -> dict[str, Any]:
        """The data of a message with sealed texts; `data` is changed. Null stays null. Raises KeysUnavailable.

        subject: the id of the aggregate, or the key of the process. Raises ValueError if a value belongs to nobody.
        """
        vault, record_type = installed(), self.record_type

        def seal(field: PersonalField, value: Any, person: str) -> Any:
            if not person:
                if not value:  # such as "" in the first state: it says nothing about anybody
                    return value
                raise ValueError(f'"{field.path}" is personal, and "{field.of}", which names the person, is empty')
            if _is_left(field, value) and vault.is_erased(person):
                return value  # a rule goes on with it, and the erased person needs no new key for that
            return vault.seal(person, record_type, field.path, value)

        self._walk(data, (), subject, seal)
        return data

    def opened(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a message with clear values; `data` is changed. Values that were never sealed stay as they are.

        Raises KeysUnavailable or UnknownKey, or ValueError if a text is damaged.
        """
        from eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

        vault = installed()

        def open_(field: PersonalField, value: Any, _: str) -> Any:
            if not is_sealed(value):
                return value
            found = vault.open(value)
            return field.erased_as if found is ERASED else found

        self._walk(data, (), "", open_)
        return data

    def sealed_json(self, body: bytes, subject: str) -> bytes:
        """Like `sealed`, of a JSON text, with members in their order."""
        return orjson.dumps(self.sealed(orjson.loads(body), subject))

    def opened_json(self, body: bytes) -> bytes:
        """Like `opened`, of a JSON text."""
        return orjson.dumps(self.opened(orjson.loads(body)))

    def persons(self, data: dict[str, Any], subject: str) -> set[str]:
        """The persons with whose keys values of a message would be sealed; `data` stays as it is."""
        found: set[str] = set()

        def note(_: PersonalField, value: Any, person: str) -> Any:
            found.add(person)
            return value

        self._walk(data, (), subject, note)
        return found - {""}

    def values(self, data: dict[str, Any]) -> list[Any]:
        """The personal values of a message in clear; `data` may be changed."""
        found: list[Any] = []

        def note(_: PersonalField, value: Any, __: str) -> Any:
            found.append(value)
            return value

        self._walk(data, (), "", note)
        return found

    def changed(self, data: dict[str, Any], change: Walk) -> dict[str, Any]:
        """The data of a message with other values; `data` is changed."""
        self._walk(data, (), "", change)
        return data

    def hidden(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a message with HIDDEN_VALUE in place of personal values; `data` is changed."""
        self._walk(data, (), "", lambda *_: HIDDEN_VALUE)
        return data

    def _walk(self, data: Any, around: tuple[Any, ...], subject: str, change: Walk) -> None:
        if type(data) is not dict:
            return
        around = (data, *around)
        for field in self.fields:
            value = data.get(field.name)
            if value is not None:
                data[field.name] = change(field, value, _person(field, around, subject))
        for inner in self.inner:
            for each in _models(data.get(inner.name), inner.kinds):
                inner.fields._walk(each, around, subject, change)


def _is_left(field: PersonalField, value: Any) -> bool:
    """Whether a value is what an erasure leaves of this field, or of another from which a rule has copied it."""
    if type(value) is str:
        return value in _LEFT
    return type(value) is type(field.erased_as) and bool(value == field.erased_as)


def _person(field: PersonalField, around: tuple[dict[str, Any], ...], subject: str) -> str:
    if not field.of:
        return subject
    for data in around:
        if field.of in data:
            person = data[field.of]
            return person if type(person) is str else ""
    return ""


def _models(value: Any, kinds: Sequence[str]) -> Iterator[Any]:
    """The models in a value of JSON that has these containers."""
    if not kinds:
        yield value
    elif kinds[0] == "list":
        for each in value if type(value) is list else ():
            yield from _models(each, kinds[1:])
    else:
        for each in value.values() if type(value) is dict else ():
            yield from _models(each, kinds[1:])


def personal_fields(
    model: type[BaseModel], record_type: str, *, ids: Sequence[str] = (), subject: str = "", is_state: bool = False
) -> PersonalFields | None:
    """The personal fields of a message or state; None if there are none. Raises DeclarationError.

    ids: fields that name a stream, an instance or a row, and so stay in clear. subject: what the person is without
    `of`, such as "the id"; "" if it needs `of`. is_state: then `of` may have a default.
    """
    what = f'"{record_type}"'
    if not mentions_personal(model):  # nearly always
        if not model.__pydantic_complete__ and _may_mention(model):
            raise DeclarationError(f"{what} may have personal fields, and a field whose type is not defined yet")
        return None
    try:
        model.model_rebuild()
    except (NameError, PydanticUserError) as error:
        raise DeclarationError(f"{what} has personal fields, and a field whose type is not defined: {error}") from error
    found = _Reading(record_type, subject, is_state).read(model, (), "")
    for field in found.fields:
        if field.name in ids:
            raise DeclarationError(
                f'field "{field.name}" of {what} names a stream, an instance or a row, so it stays in clear, and '
                "cannot be personal: use an id that does not say who a person is"
            )
    return found


class _Reading:
    """Reads the declaration of a message or state."""

    def __init__(self, record_type: str, subject: str, is_state: bool) -> None:
        self._record_type, self._subject, self._is_state = record_type, subject, is_state

    def read(self, model: type[BaseModel], around: tuple[type[BaseModel], ...], prefix: str) -> PersonalFields:
        """The personal fields of a model; around: those that it is nested in, the innermost first."""
        fields, inner = [], []
        for name, info in model.model_fields.items():
            path = f"{prefix}{name}"
            marks = [each for each in info.metadata if _is_mark(each)]
            if not marks and not mentions_personal(info.annotation):
                continue
            if info.alias or info.validation_alias or info.serialization_alias:
                raise self._error(path, "is personal, or has personal fields, and has an alias: remove the alias")
            if not marks:
                kinds, nested = _nested(info.annotation)
                if nested is None:
                    raise self._error(
                        path,
                        "has Personal inside its type: mark the whole field, as in "
                        f"{name}: Annotated[str | None, Personal()]",
                    )
                if nested in (model, *around):
                    raise self._error(path, "is a model inside itself, which cannot have personal fields")
                inner.append(_Inner(name, kinds, self.read(nested, (model, *around), f"{path}.")))
                continue
            if len(marks) > 1:
                raise self._error(path, "has several Personal: a value belongs to one person")
            if mentions_personal(info.annotation):
                raise self._error(path, "is personal, and so is something inside it: mark one of both")
            self._check_person(path, marks[0], (model, *around))
            self._check_erased(path, name, info, marks[0])
            if type(marks[0].erased_as) is str:
                _LEFT.add(marks[0].erased_as)
            fields.append(PersonalField(name, path, marks[0].of, marks[0].erased_as))
        return PersonalFields(self._record_type, tuple(fields), tuple(inner))

    def _check_person(self, path: str, mark: Personal, models: tuple[type[BaseModel], ...]) -> None:
        if not mark.of:
            if not self._subject:
                raise self._error(path, 'does not say whose it is: write Personal(of="customer_id")')
            return
        found = next((each.model_fields[mark.of] for each in models if mark.of in each.model_fields), None)
        if found is None:
            raise self._error(path, f'is personal of "{mark.of}", which is no field beside it or around it')
        if found.annotation is not str:
            raise self._error(path, f'is personal of "{mark.of}", which must be a text: write {mark.of}: str')
        if not self._is_state and not found.is_required():
            raise self._error(path, f'is personal of "{mark.of}", which has a default: remove the default')
        if any(_is_mark(each) for each in found.metadata):
            raise self._error(path, f'is personal of "{mark.of}", which is personal itself: use a pseudonymous id')
        if found.alias or found.validation_alias or found.serialization_alias:
            raise self._error(path, f'is personal of "{mark.of}", which has an alias: remove it')

    def _check_erased(self, path: str, name: str, info: FieldInfo, mark: Personal) -> None:
        kind: Any = info.annotation
        if info.metadata:
            kind = typing.Annotated[(kind, *info.metadata)]
        try:
            TypeAdapter(kind).validate_json(orjson.dumps(mark.erased_as), strict=True)
        except ValidationError as error:
            if mark.erased_as is None:
                raise self._error(
                    path,
                    f"is null once its person is erased, which its type does not allow: write {name}: "
                    'Annotated[… | None, Personal()], or Personal(erased_as="(erased)")',
                ) from error
            raise self._error(path, f"has an erased_as that is no value of it: {error_text(error)}") from error

    def _error(self, path: str, problem: str) -> DeclarationError:
        return DeclarationError(f'field "{path}" of "{self._record_type}" {problem}')


def texts_in(values: Any) -> set[str]:
    """The texts and numbers in values of JSON, as a message may repeat them."""
    match values:
        case str():
            return {values} if len(values) >= MIN_HIDDEN_CHARACTERS else set()
        case bool():
            return set()
        case int() | float():
            return texts_in(str(values))
        case list():
            return set().union(*map(texts_in, values))
        case dict():
            return set().union(*map(texts_in, values.values()))
    return set()


def is_personal(info: FieldInfo) -> bool:
    """Whether a field is marked as personal."""
    return has_mark(info)


def _may_mention(model: type[BaseModel]) -> bool:
    """Whether the source of an annotation that cannot be read yet has a mark, as far as its text says."""
    annotations = (vars(each).get("__annotations__", {}) for each in model.__mro__)
    return any("Personal" in str(text) for each in annotations for text in each.values())


def personal_names(model: type[BaseModel]) -> frozenset[str]:
    """The names of a model's own fields that are personal: in records, they are texts."""
    return _personal_names(model) if _is_complete(model) else _personal_names.__wrapped__(model)


def _is_complete(model: type[BaseModel]) -> bool:
    """Whether the types of its fields are known; fields whose types are defined later have no marks before."""
    return bool(model.__pydantic_complete__ or model.model_rebuild(raise_errors=False))


@lru_cache(maxsize=10_000)
def _personal_names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, info in model.model_fields.items() if is_personal(info))


def _is_mark(each: object) -> bool:
    if each is Personal:
        raise DeclarationError("write Personal(), with parentheses")
    return isinstance(each, Personal)


def mentions_personal(annotation: Any) -> bool:
    """Whether a type has a personal field, or a mark, anywhere inside."""
    return _mentions(annotation, set())


def _mentions(annotation: Any, seen: set[Any]) -> bool:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        if annotation in seen:
            return False
        seen.add(annotation)
        if issubclass(annotation, BaseModel):
            _is_complete(annotation)
            return any(
                any(_is_mark(each) for each in info.metadata) or _mentions(info.annotation, seen)
                for info in annotation.model_fields.values()
            )
        if dataclasses.is_dataclass(annotation) or hasattr(annotation, "__total__") or hasattr(annotation, "_fields"):
            try:
                hints = typing.get_type_hints(annotation, include_extras=True)
            except Exception:  # noqa: BLE001 - an annotation may be any expression; pydantic refuses it
                return False
            return any(_mentions(each, seen) for each in hints.values())
        return False
    if any(_is_mark(each) for each in getattr(annotation, "__metadata__", ())):
        return True
    for name in ("__value__", "__supertype__"):  # of type aliases, and of NewType
        if (inner := getattr(annotation, name, None)) is not None and _mentions(inner, seen):
            return True
    return any(_mentions(each, seen) for each in typing.get_args(annotation) if not _is_mark(each))


def _nested(annotation: Any) -> tuple[tuple[str, ...], type[BaseModel] | None]:
    """The containers around a nested model, and the model; None if it is not the only thing that there may be."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _nested(arguments[0])
    if origin in (typing.Union, types.UnionType):
        members = [each for each in arguments if each is not type(None)]
        return _nested(members[0]) if len(members) == 1 else ((), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not issubclass(annotation, RootModel):
        return (), annotation
    if origin in _MAPPINGS and len(arguments) == 2:
        kinds, model = _nested(arguments[1])
        return ("mapping", *kinds), None if mentions_personal(arguments[0]) else model
    if isinstance(origin, type) and issubclass(origin, _LISTS):
        items = [each for each in arguments if each is not Ellipsis]
        if len(items) == 1:
            kinds, model = _nested(items[0])
            return ("list", *kinds), model
    return (), None
