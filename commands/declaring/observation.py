"""Observations: facts reported from outside, which no aggregate decides; their types and records."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from headwater.commands.declaring.argument_checks import check_round_trip, quoted_value, take_arguments
from headwater.commands.declaring.exact_numbers import inexact_numbers
from headwater.commands.declaring.faults import faults_of, first_faults, validated
from headwater.commands.declaring.filled_fields import NOTHING, check_filled_fields, filled_fields
from headwater.commands.declaring.json_body import ESCAPED_NUL, NUL
from headwater.commands.declaring.personal import PersonalFields
from headwater.commands.declaring.personal_reading import personal_fields
from headwater.commands.declaring.times import may_hold_times, unfit_times
from headwater.commands.errors import DeclarationError, MalformedObservation, TooLarge, UnknownObservation
from headwater.eventlog import topics
from headwater.eventlog.declaring import must_be_version
from headwater.eventlog.envelope import Envelope, encode, format_time, stream_name, timestamp_ms
from headwater.eventlog.limits import MAX_ENTRY_BYTES, entry_size
from headwater.eventlog.ports import Entry
from headwater.eventlog.programs.modules import by_name, find
from headwater.eventlog.times import FIRST_RECORD_MS

TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*")
RESERVED = "heartbeat"
"""Keys of heartbeats begin with it."""
SOURCE = "/headwater/observations"
EARLIEST = datetime.fromtimestamp(FIRST_RECORD_MS / 1000, UTC)
MAX_AHEAD = timedelta(seconds=60)
"""How far the clock of who reports may be ahead of this machine's."""


def _not_ahead(time: datetime) -> datetime:
    if time > datetime.now(UTC) + MAX_AHEAD:
        seconds = MAX_AHEAD.total_seconds()
        raise ValueError(
            f"it is more than {seconds:g} s in the future: correct the clock of the source, or leave it out"
        )
    return time


class Observation(BaseModel):
    """A type of observation: `class ListingViewed(Observation, type="listing_viewed", version=1)`.

    It is registered if it is in a module of HEADWATER_MODULES. type and version are part of the storage format: they
    stay if the class is renamed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    type: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def __init_subclass__(cls, *, type: str = "", version: int = 1, **kwargs: Any) -> None:
        take_arguments(super().__init_subclass__, cls, kwargs, ("type", "version"))
        if type == RESERVED:
            raise DeclarationError(f'"{type}" is reserved by Headwater: use another observation type')
        if type != "" and not (isinstance(type, str) and TYPE_NAME.fullmatch(type)):
            raise DeclarationError(
                f'"{cls.__name__}": {quoted_value(type)} is not an observation type: write it like "listing_viewed"'
            )
        try:
            must_be_version("version", version)
        except ValueError as error:
            raise DeclarationError(f'observation "{type or cls.__name__}": {error}') from error
        cls.type, cls.version = type, version


Body = TypeVar("Body", bound=Observation)


class Report(BaseModel, Generic[Body]):
    """One reported observation.

    id and source identify it: a report with the same id and source is a duplicate. time: when it was observed, with the
    offset from UTC, at most MAX_AHEAD in the future; default: the time of arrival.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,255}$", description="unique within its source")]
    source: Annotated[str, Field(pattern=r"^[\x21-\x2e\x30-\x7e]{1,255}$", description="who reports; without a slash")]
    time: Annotated[AwareDatetime, Field(ge=EARLIEST), AfterValidator(_not_ahead)] | None = None
    data: Body

    _stored: bytes | None = PrivateAttr(None)

    def stored_data(self) -> bytes:
        """The data as its record has it, with encrypted values.

        The first call seals them, which may wait for the store of keys. If it has a time of before the erasure of a
        person, it may be sent again: values of this person are left out. Raises KeysUnavailable, and
        MalformedObservation if a value belongs to nobody.
        """
        if self._stored is None:
            body: bytes = self.data.__pydantic_serializer__.to_json(self.data)
            fields = sealed_fields(type(self.data))
            try:
                self._stored = body if fields is None else fields.sealed_json(body, "", since=self.time)
            except ValueError as error:
                detail = {"type": "person_missing", "loc": ("data",), "msg": str(error)}
                raise MalformedObservation(self.data.type, [detail]) from error
        return self._stored


@lru_cache(maxsize=10_000)
def sealed_fields(kind: type[Observation]) -> PersonalFields | None:
    """The personal fields of a type of observation; None if it has none. Raises DeclarationError."""
    return personal_fields(kind, kind.type)


class ObservationRegistry:
    """The types of observations of a deployment.

    types: by name. reports: the model of a report by type. personal: the types that have personal fields.
    """

    def __init__(self, found: Iterable[tuple[str, type[Observation]]]) -> None:
        """Take (module, class) pairs; raises DeclarationError naming both modules if two have the same name."""
        types = by_name(found, attrgetter("type"), "the observation", DeclarationError)
        self.types: Mapping[str, type[Observation]] = MappingProxyType(types)
        for kind in types.values():
            try:
                check_round_trip(kind)
            except ValueError as error:
                raise DeclarationError(f'observation "{kind.type}": {error}') from error
            check_filled_fields(kind)
        self.reports: Mapping[str, type[Report[Any]]] = MappingProxyType(
            {name: Report[kind] for name, kind in types.items()}  # type: ignore[valid-type]
        )
        self.personal = frozenset(name for name, kind in types.items() if sealed_fields(kind) is not None)

    @classmethod
    def load(cls, modules: Sequence[str]) -> ObservationRegistry:
        """The types of a deployment that loads `modules` (see `LogSettings.modules`)."""
        classes = find(modules, type)
        return cls((module, kind) for module, kind in classes if issubclass(kind, Observation) and kind.type)

    def read(self, observation_type: str, report: bytes, claims: Mapping[str, Any] | None = None) -> Report[Any]:
        """The report in a JSON text; raises UnknownObservation, MalformedObservation with pydantic's details, or
        UnfitClaim.

        claims: of the caller of the API, which fills fields with them and with the current time; None: the sender has.
        Personal values are sealed here: then it may wait for the store of keys, and raises KeysUnavailable.

        A user's validators may raise any other error; none of them ends the process.
        """
        model = self.reports.get(observation_type)
        if model is None:
            raise UnknownObservation(observation_type, tuple(self.types))
        kind = self.types[observation_type]
        document = _filled(kind, report, claims)
        try:
            read = validated(model, document, observation_type, is_personal=sealed_fields(kind) is not None)
        except ValidationError as error:
            faults = faults_of(error)
            if claims is not None:
                filled_fields(kind).check(observation_type, faults.details, "data")
            raise MalformedObservation(observation_type, *faults) from None  # its text would have all faults
        if ESCAPED_NUL.search(report):
            raise MalformedObservation(observation_type, [NUL])
        if inexact := inexact_numbers(report, kind, "data"):
            raise MalformedObservation(observation_type, *first_faults(inexact))
        if may_hold_times(kind):
            unfit = first_faults(unfit_times(read.data, ("data",)))
            if unfit.total:
                raise MalformedObservation(observation_type, *unfit)
        if observation_type in self.personal:
            read.stored_data()
        return read


def _filled(kind: type[Observation], report: bytes, claims: Mapping[str, Any] | None) -> bytes:
    """The report with the fields that the API fills; raises MalformedObservation if it has one, or UnfitClaim."""
    filled = filled_fields(kind)
    if filled is NOTHING:
        return report
    try:
        document = orjson.loads(report)
    except orjson.JSONDecodeError:
        return report  # the model says what is wrong
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        return report
    if claims is not None:
        if given := filled.given_in(data):
            details = [{**fault, "loc": ("data", *fault["loc"])} for fault in given]
            raise MalformedObservation(kind.type, *first_faults(details))
        data = {**data, **filled.from_caller(kind.type, claims)}
    times = dict.fromkeys(filled.times, format_time(datetime.now(UTC)))
    return orjson.dumps({**document, "data": {**times, **data}})


def stream_of(report: Report[Any]) -> str:
    """`type/source`: all observations of one source are in one partition, in the order of their arrival."""
    return stream_name(report.data.type, report.source)


def to_entry(
    report: Report[Any],
    now: datetime,
    correlation_id: str | None,
    traceparent: str | None,
    actor: str | None = None,
) -> Entry:
    """The record of a report accepted at `now`; raises TooLarge, and what `Report.stored_data` raises.

    Its key is `type/source/id@…` and its own, so that compaction keeps each report: whether one is late depends on when
    it was accepted, and a late copy must not take the place of one in time. What is behind the last @ has no @.
    """
    data, stream, time = report.data, stream_of(report), report.time or now
    envelope = Envelope(
        id=f"{stream}/{report.id}",
        type=data.type,
        stream=stream,
        time=time,
        data={},
        source=SOURCE,
        data_version=data.version,
        correlation_id=correlation_id,
        traceparent=traceparent,
        recorded_time=now,
        actor=actor,
    )
    value = encode(envelope, report.stored_data())
    key = f"{envelope.id}@{timestamp_ms(now)}-{secrets.token_hex(6)}"
    if (size_bytes := entry_size(key, value)) > MAX_ENTRY_BYTES:
        raise TooLarge(size_bytes, MAX_ENTRY_BYTES, f'the record of observation "{envelope.id}"')
    return Entry(topics.OBSERVATIONS, key, value, timestamp_ms(time))
