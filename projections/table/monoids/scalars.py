"""Monoids of single values: the latest, the sum, the extreme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from projections.table.monoids.monoid import State, StateField


@dataclass(frozen=True, slots=True)
class Pick:
    """Keep the values with the highest (or lowest) ordering key: `last` and `first`.

    The key may have several parts, the most significant first; if that part is null, the event does not count.
    """

    order: tuple[StateField, ...]
    values: tuple[StateField, ...]
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (*self.order, *self.values)

    def combine(self, row: State, patch: State) -> None:
        first, *more = self.order
        theirs, ours = patch.get(first.name), row.get(first.name)
        if theirs is None:
            return
        if more and theirs == ours:
            theirs, ours = ([of[each.name] for each in more] for of in (patch, row))
        if ours is not None and (theirs < ours if self.highest else theirs > ours):
            return
        for field in self.order:
            row[field.name] = patch.get(field.name)
        for field in self.values:
            row[field.name] = patch.get(field.name)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        theirs, ours = ([f'{alias}."{each.name}"' for each in self.order] for alias in (patch, row))
        present = " AND ".join(f"{each} IS NOT NULL" for each in theirs)
        further = f"({', '.join(theirs)}) {'>=' if self.highest else '<='} ({', '.join(ours)})"
        wins = f"{present} AND ({ours[-1]} IS NULL OR {further})"
        return {
            field.name: f'CASE WHEN {wins} THEN {patch}."{field.name}" ELSE {row}."{field.name}" END'
            for field in self.fields
        }

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        absent = " or ".join(f"{lifted[each.name]} is null" for each in self.order)
        members = ", ".join(f"{lifted[field.name]} as `{field.name}`" for field in self.fields)
        best = f"{'max' if self.highest else 'min'}(if({absent}, null, struct({members})))"
        return {field.name: f"{best}.`{field.name}`" for field in self.fields}

    def spark_alone(self, lifted: Mapping[str, str]) -> dict[str, str]:
        absent = " or ".join(f"{lifted[each.name]} is null" for each in self.order)
        return {field.name: f"if({absent}, null, {lifted[field.name]})" for field in self.fields}


@dataclass(frozen=True, slots=True)
class Sum:
    """Add integers, from 0: `add` and `count`. Floats are refused, because their sum depends on the order."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        row[self.field.name] = (row.get(self.field.name) or 0) + (patch.get(self.field.name) or 0)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        ours, theirs = f'{row}."{self.field.name}"', f'{patch}."{self.field.name}"'
        return {self.field.name: f"coalesce({ours}, 0) + coalesce({theirs}, 0)"}

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {self.field.name: f"coalesce(sum({lifted[self.field.name]}), 0L)"}

    def spark_alone(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {self.field.name: f"coalesce({lifted[self.field.name]}, 0L)"}


@dataclass(frozen=True, slots=True)
class Extreme:
    """Keep the highest (or lowest) value of all events: `maximum` and `minimum`. Values are never removed."""

    field: StateField
    highest: bool

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        theirs, ours = patch.get(self.field.name), row.get(self.field.name)
        if theirs is not None:
            row[self.field.name] = theirs if ours is None else (max if self.highest else min)(ours, theirs)

    def sql(self, row: str, patch: str) -> dict[str, str]:
        name = "greatest" if self.highest else "least"
        return {self.field.name: f'{name}({row}."{self.field.name}", {patch}."{self.field.name}")'}

    def spark(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {self.field.name: f"{'max' if self.highest else 'min'}({lifted[self.field.name]})"}

    def spark_alone(self, lifted: Mapping[str, str]) -> dict[str, str]:
        return {self.field.name: lifted[self.field.name]}
