"""Reads which fields of a message or state are personal, and refuses what cannot be encrypted or erased."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from pydantic import BaseModel, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from headwater.commands.declaring.personal import NestedFields, Personal, PersonalField, PersonalFields, note_left
from headwater.commands.declaring.personal_marks import is_mark, may_mention, mentions_personal
from headwater.commands.errors import DeclarationError
from headwater.eventlog.hidden_values import error_text

_LISTS: Final = (list, tuple, set, frozenset, Sequence)
_MAPPINGS: Final = (dict, Mapping)


def personal_fields(
    model: type[BaseModel], record_type: str, *, ids: Sequence[str] = (), subject: str = "", is_state: bool = False
) -> PersonalFields | None:
    """The personal fields of a message or state; None if there are none. Raises DeclarationError.

    ids: fields that name a stream, an instance or a row, and so stay in plaintext. subject: what the person is without
    `of`, such as "the id"; "" if it needs `of`. is_state: then `of` may have a default.
    """
    what = f'"{record_type}"'
    if not mentions_personal(model):  # nearly always
        if not model.__pydantic_complete__ and may_mention(model):
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
                f'field "{field.name}" of {what} names a stream, an instance or a row, so it stays in plaintext, and '
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
            marks = [mark for mark in info.metadata if is_mark(mark)]
            if not marks and not mentions_personal(info.annotation):
                continue
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
                inner.append(NestedFields(name, kinds, self.read(nested, (model, *around), f"{path}.")))
                continue
            if len(marks) > 1:
                raise self._error(path, "has several Personal: a value belongs to one person")
            if mentions_personal(info.annotation):
                raise self._error(path, "is personal, and so is something inside it: mark one of both")
            self._check_person(path, marks[0], (model, *around))
            self._check_erased(path, name, info, marks[0])
            note_left(marks[0].erased_as)
            fields.append(PersonalField(name, path, marks[0].of, marks[0].erased_as))
        return PersonalFields(self._record_type, tuple(fields), tuple(inner))

    def _check_person(self, path: str, mark: Personal, models: tuple[type[BaseModel], ...]) -> None:
        if not mark.of:
            if not self._subject:
                raise self._error(path, 'does not say whose it is: write Personal(of="customer_id")')
            return
        person_field = next((model.model_fields[mark.of] for model in models if mark.of in model.model_fields), None)
        if person_field is None:
            raise self._error(path, f'is personal of "{mark.of}", which is no field beside it or around it')
        if person_field.annotation is not str:
            raise self._error(path, f'is personal of "{mark.of}", which must be a text: write {mark.of}: str')
        if not self._is_state and not person_field.is_required():
            raise self._error(path, f'is personal of "{mark.of}", which has a default: remove the default')
        if any(is_mark(marked) for marked in person_field.metadata):
            raise self._error(path, f'is personal of "{mark.of}", which is personal itself: use a pseudonymous id')

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


def _nested(annotation: Any) -> tuple[tuple[str, ...], type[BaseModel] | None]:
    """The containers around a nested model, and the model; None if it is not the only thing that there may be."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _nested(arguments[0])
    if origin in (typing.Union, types.UnionType):
        members = [argument for argument in arguments if argument is not type(None)]
        return _nested(members[0]) if len(members) == 1 else ((), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not issubclass(annotation, RootModel):
        return (), annotation
    if origin in _MAPPINGS and len(arguments) == 2:
        kinds, model = _nested(arguments[1])
        return ("mapping", *kinds), None if mentions_personal(arguments[0]) else model
    if isinstance(origin, type) and issubclass(origin, _LISTS):
        items = [argument for argument in arguments if argument is not Ellipsis]
        if len(items) == 1:
            kinds, model = _nested(items[0])
            return ("list", *kinds), model
    return (), None
