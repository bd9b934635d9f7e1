"""Environment variables with settings: declared with their types, found and checked by pydantic-settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headwater.eventlog.errors import SettingError

Count = Annotated[int, Field(ge=1, le=2**31 - 1, description="an integer from 1 to 2147483647")]
Processes = Annotated[int, Field(ge=1, le=1024, description="an integer from 1 to 1024")]
Days = Annotated[int, Field(ge=1, le=36_500, description="a number of days from 1 to 36500")]
Port = Annotated[int, Field(ge=1, le=65535, description="a port number between 1 and 65535")]
EnvironmentName = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9_]{0,30}$", description="a name of a-z, 0-9 and _ with at most 31 characters"),
]

UNPRINTABLE: Final = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")
"""What no setting contains, and some clients fail at: control characters, and bytes that are not UTF-8."""
IN_FILE: Final = "_FILE"
"""Added to the name of a variable that may hold a secret: a variable with the path of a file that has the value."""
MAX_SECRET: Final = 1 << 16
"""Characters of such a file that are read."""
_BROKER: Final = re.compile(r"(?:[^\s,:@/\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def _check_brokers(value: str) -> str:
    for broker in value.split(",") if value else ():
        broker_match = _BROKER.fullmatch(broker.strip())
        if broker_match is None or not 0 < int(broker_match[1]) < 2**16:
            raise ValueError(f'"{broker}" is not host:port')
    return value


Brokers = Annotated[
    str,
    AfterValidator(_check_brokers),
    Field(description="the addresses of Kafka, such as kafka-1:9092,kafka-2:9092"),
]


def secret(env: Mapping[str, str], variable: str) -> str:
    """The value of a variable that may hold a secret, or of the file that `<variable>_FILE` names; empty: none is set.

    Line ends at the end of the file are no part of the value. Raises SettingError if both are set, or if the file
    cannot be read or is empty; it shows the path and not the value.
    """
    value, in_file = env.get(variable, ""), variable + IN_FILE
    path = env.get(in_file, "")
    if not path:
        return value
    if value:
        raise SettingError(variable, "…", f"nothing, or unset {in_file}: only one of them can be used")
    try:
        with Path(path).open(encoding="utf-8") as file:
            content = file.read(MAX_SECRET).rstrip("\r\n")
    except (OSError, ValueError) as error:  # also a path, or a text, that is none
        raise SettingError(in_file, path, f"a readable file with the value of {variable} ({error})") from error
    if not content:
        raise SettingError(in_file, path, f"a file with the value of {variable}; this one is empty")
    return content


class Variables(BaseSettings):
    """Environment variables: the name of each is `env_prefix` and the name of its field, in capitals.

    An empty variable counts as not set, unless `never_empty` has its field. The description of a field says what its
    variable may be set to. A field with `repr=False` may hold a secret, which no error shows, and which a file may have
    (see `secret`).

    `read` takes the variables of the mapping that it gets; an instance that is made in code reads none.
    """

    model_config = SettingsConfigDict(env_prefix="HEADWATER_", frozen=True)
    never_empty: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Self:
        """The variables of `env`; raises SettingError naming every one that is wrong."""
        given = {field: env[cls.variable(field)] for field in cls.model_fields if cls.variable(field) in env}
        for field, declared in cls.model_fields.items():
            if not declared.repr and (value := secret(env, cls.variable(field))):
                given[field] = value
        faults = [cls.fault(field, value) for field, value in given.items() if UNPRINTABLE.search(value)]
        if faults:
            raise SettingError.of(faults)
        values: dict[str, Any] = {field: value for field, value in given.items() if value or field in cls.never_empty}
        try:
            return cls(**values)
        except ValidationError as error:
            wrong = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
            faults = [cls.fault(field, given[field]) for field in wrong]
        raise SettingError.of(faults)

    @classmethod
    def variable(cls, field: str) -> str:
        """The name of a field's variable, such as `HEADWATER_PARTITIONS`."""
        return cls.model_config.get("env_prefix", "") + field.upper()

    @classmethod
    def fault(cls, field: str, value: str) -> SettingError:
        """The error for a field whose variable has this value."""
        declared = cls.model_fields[field]
        shown = value if declared.repr else "…"
        return SettingError(cls.variable(field), shown, declared.description or "another value")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what `read` passes: the default would read the variables of this process at every instance."""
        return (init_settings,)
