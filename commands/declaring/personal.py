"""Personal fields: which values of a message or state are sealed, with whose key, and what an erasure leaves of them.

    class Registered(Event, type="customer.registered"):
        customer_id: str
        email: Annotated[str | None, Personal()]
        name: Annotated[str, Personal(erased_as="(erased)")]

In a record, a ciphertext stands in place of the value; rules get the value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from headwater.commands.declaring.ids import SEPARATOR, encoded
from headwater.commands.errors import DeclarationError
from headwater.eventlog.personal.installed import installed
from headwater.eventlog.personal.mark import PersonalMark
from headwater.eventlog.personal.sealed_text import is_sealed, is_withheld

Walk = Callable[["PersonalField", Any, str], Any]
"""What a value becomes: it gets the field, the value, and the person, who is "" if that is not known."""

HIDDEN: Final = "[personal]"
"""In place of a personal text in a message of a rule."""
HIDDEN_VALUE: Final = {"hidden": "personal"}
"""In place of a personal value, for callers of the API who may not read it."""
MIN_HIDDEN_CHARACTERS: Final = 2
"""Of such a text: shorter ones are in every other word."""
_EMPTY: Final[tuple[Any, ...]] = ("", [], {})
_LEFT: Final[set[str]] = set()
"""Texts that are `erased_as` of any field."""


@dataclass(frozen=True)
class Personal(PersonalMark):
    """Marks a field whose values are sealed with the key of a person: `email: Annotated[str | None, Personal()]`.

    of: the field with the person's id, beside this one or, in a nested model, in one around it; default: the id of the
    aggregate, or the key of the process. Ids stay in plaintext, so they must not say who a person is.
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


class NestedFields(NamedTuple):
    """A field whose value has models with personal fields. kinds: of the containers around them, such as list."""

    name: str
    kinds: tuple[str, ...]
    fields: PersonalFields


@dataclass(frozen=True, slots=True)
class PersonalFields:
    """The personal fields of a model.

    record_type: of the messages, or the name of the aggregate or process with the state. fields: of the model itself.
    inner: those with nested models that have personal fields. tenants: which parts of the subject the API fills with
    claims of the caller: persons of two tenants are two, also under the same id.
    """

    record_type: str
    fields: tuple[PersonalField, ...]
    inner: tuple[NestedFields, ...]
    tenants: tuple[int, ...] = ()

    @property
    def all(self) -> Iterator[PersonalField]:
        """Those of nested models, too."""
        yield from self.fields
        for inner in self.inner:
            yield from inner.fields.all

    def sealed(
        self,
        data: dict[str, Any],
        subject: str,
        *,
        revives: bool = True,
        keeps_empty: bool = False,
        since: datetime | None = None,
    ) -> dict[str, Any]:
        """The data of a message with ciphertexts; `data` is changed. Null stays null. Raises KeysUnavailable.

        subject: the id of the aggregate, or the key of the process. Raises ValueError if a value belongs to nobody.
        revives: whether erased persons get new keys; if not, their values are withheld. keeps_empty: whether empty
        values of erased persons stay as they are, as those of a new state, which need no key. since: when the message
        was made; values of persons who were erased later are left out, as if they had been erased with the others.
        """
        vault, record_type = installed(), self.record_type

        def seal(field: PersonalField, value: Any, person: str) -> Any:
            if not person:
                if not value:  # such as "" in the first state: it says nothing about anybody
                    return value
                raise ValueError(f'"{field.path}" is personal, and "{field.of}", which names the person, is empty')
            says_nothing = (keeps_empty and value in _EMPTY) or _is_left(field, value)
            if says_nothing and vault.is_erased(person):
                return value  # a rule goes on with it, and the erased person needs no new key for that
            return vault.seal(person, record_type, field.path, value, revives=revives, since=since)

        return self.changed(data, seal, subject)

    def withholds(self, data: dict[str, Any]) -> bool:
        """Whether a value of a message is withheld; `data` stays as it is."""
        return any(is_withheld(value) for value, _ in self._found(data))

    def opened(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a message with clear values; `data` is changed. Values that were never sealed stay as they are.

        Raises KeysUnavailable, also as ValueWithheld, or ValueError if a text is damaged.
        """
        from headwater.eventlog.personal.vault import ERASED  # noqa: PLC0415 - it imports cryptography

        vault = installed()

        def open_(field: PersonalField, value: Any, _: str) -> Any:
            if not is_sealed(value):
                return value
            plaintext = vault.open(value)
            return field.erased_as if plaintext is ERASED else plaintext

        return self.changed(data, open_)

    def sealed_json(self, body: bytes, subject: str, since: datetime | None = None) -> bytes:
        """Like `sealed`, of a JSON text that needs no canonical form, with members in their order."""
        return orjson.dumps(self.sealed(orjson.loads(body), subject, keeps_empty=True, since=since))

    def opened_json(self, body: bytes) -> bytes:
        """Like `opened`, of a JSON text."""
        return orjson.dumps(self.opened(orjson.loads(body)))

    def persons(self, data: dict[str, Any], subject: str) -> set[str]:
        """The persons with whose keys values of a message would be encrypted; `data` stays as it is."""
        return {person for _, person in self._found(data, subject)} - {""}

    def values(self, data: dict[str, Any]) -> list[Any]:
        """The personal values of a message in clear; `data` stays as it is."""
        return [value for value, _ in self._found(data)]

    def _found(self, data: dict[str, Any], subject: str = "") -> list[tuple[Any, str]]:
        """The personal values of a message, each with its person."""
        found = list[tuple[Any, str]]()

        def note(_: PersonalField, value: Any, person: str) -> Any:
            found.append((value, person))
            return value

        self.changed(data, note, subject)
        return found

    def hidden(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a message with HIDDEN_VALUE in place of personal values; `data` is changed."""
        return self.changed(data, lambda *_: HIDDEN_VALUE)

    def person(self, of: str, subject: str) -> str:
        """The person whom a field `of` a message with this subject names: `acme/P1` if the subject has a tenant."""
        parts = subject.split(SEPARATOR)
        tenant = [parts[place] for place in self.tenants if place < len(parts)]
        return SEPARATOR.join([*tenant, encoded(of)]) if tenant and of else of

    def set_tenants(self, names: Sequence[str], claimed: Container[str]) -> None:
        """Know which parts of the subject the API fills. names: of its parts."""
        places = tuple(place for place, name in enumerate(names) if name in claimed)
        object.__setattr__(self, "tenants", places if len(names) > 1 else ())

    def changed(self, data: dict[str, Any], change: Walk, subject: str = "") -> dict[str, Any]:
        """The data of a message with other values; `data` is changed. subject: see `sealed`."""

        def visit(fields: PersonalFields, data: Any, around: tuple[Any, ...]) -> None:
            if type(data) is not dict:
                return
            around = (data, *around)
            for field in fields.fields:
                value = data.get(field.name)
                if value is not None:
                    person = self.person(_named(field, around), subject) if field.of else subject
                    data[field.name] = change(field, value, person)
            for inner in fields.inner:
                for model in _models(data.get(inner.name), inner.kinds):
                    visit(inner.fields, model, around)

        visit(self, data, ())
        return data


def note_left(erased_as: Any) -> None:
    """Know a value that an erasure leaves, so that a text which it has left is not sealed."""
    if type(erased_as) is str:
        _LEFT.add(erased_as)


def _is_left(field: PersonalField, value: Any) -> bool:
    """Whether a value is what an erasure leaves of this field, or of another from which a rule has copied it."""
    if type(value) is str:
        return value in _LEFT
    return type(value) is type(field.erased_as) and bool(value == field.erased_as)


def _named(field: PersonalField, around: tuple[dict[str, Any], ...]) -> str:
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
        for item in value if type(value) is list else ():
            yield from _models(item, kinds[1:])
    else:
        for item in value.values() if type(value) is dict else ():
            yield from _models(item, kinds[1:])


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
