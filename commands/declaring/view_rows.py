"""Rows of views as inputs of processes: which columns of which view a process reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

import orjson
from pydantic import BaseModel, ConfigDict

from headwater.commands.declaring.argument_checks import quoted_value, take_arguments
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing.columns import Column, Kind, column_of
from headwater.eventlog.capturing.errors import SourceDeclarationError
from headwater.eventlog.topics import VIEWS

VIEW_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
RESERVED_FIELDS: Final = frozenset({"view", "columns", "json_columns"})
"""Attributes of ViewRow; columns with these names need an alias."""


class ViewRow(BaseModel):
    """A row of a view that has the store `Topic()`: `class RapidPayments(ViewRow, view="rapid_payments")`.

    Its fields are the columns that are wanted, each with its type; the view may have more. A field's name is its
    column's, unless it has an alias. A JSON column is declared as what its text holds, such as `list[str]`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    view: ClassVar[str] = ""
    columns: ClassVar[Mapping[str, Column]] = MappingProxyType({})
    """By name, in the order of declaration."""
    json_columns: ClassVar[frozenset[str]] = frozenset()
    """The columns that are read from the JSON text that they hold."""

    def __init_subclass__(cls, *, view: str = "", **kwargs: Any) -> None:
        take_arguments(super().__init_subclass__, cls, kwargs, ("view",))
        if view == "":
            raise DeclarationError(
                f'"{cls.__name__}" names no view: write class {cls.__name__}(ViewRow, view="rapid_payments")'
            )
        if not isinstance(view, str) or not VIEW_NAME.fullmatch(view):
            raise DeclarationError(
                f'"{cls.__name__}": {quoted_value(view)} is not the name of a view: use a-z, 0-9 and _'
            )
        for name in sorted(RESERVED_FIELDS.intersection(vars(cls).get("__annotations__", {}))):
            raise DeclarationError(
                f'column "{name}" of view "{view}" has the name of an attribute of ViewRow: declare it as '
                f'{name}_: Annotated[…, Field(alias="{name}")]'
            )
        cls.view = view

    @classmethod
    def __pydantic_init_subclass__(cls, *, view: str = "", **kwargs: Any) -> None:
        # pydantic knows the fields only at this point
        try:
            columns = [column_of(f'view "{view}"', name, info) for name, info in cls.model_fields.items()]
        except SourceDeclarationError as error:
            raise DeclarationError(str(error)) from error
        if not columns:
            raise DeclarationError(f'"{cls.__name__}" has no columns: declare those of "{view}" that the process reads')
        cls.columns = MappingProxyType({column.name: column for column in columns})
        anything = {info.alias or name for name, info in cls.model_fields.items() if info.annotation is Any}
        held = {column.name for column in columns if column.kind in (Kind.ARRAY, Kind.JSON)}
        cls.json_columns = frozenset(held - anything)

    @classmethod
    def topic(cls) -> str:
        """The view's topic without the environment: `views.rapid_payments`."""
        return f"{VIEWS}{cls.view}"

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """The row with these columns; raises ValueError, such as pydantic's ValidationError, if it does not fit."""
        values = {name: row[name] for name in cls.columns if name in row}
        for name in cls.json_columns:
            if isinstance(text := values.get(name), str):
                try:
                    values[name] = orjson.loads(text)
                except orjson.JSONDecodeError as error:
                    raise ValueError(f'the column "{name}" is not JSON: {error}') from error
        return cls.model_validate_json(orjson.dumps(values))
