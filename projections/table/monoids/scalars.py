"""Monoids of single values: the latest, the sum, the extreme."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.projections.table.decimals import added, extreme, fits_digits
from headwater.projections.table.monoids.monoid import State, StateField


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


@dataclass(frozen=True, slots=True)
class Sum:
    """Add integers, from 0: `add` and `count`. Floats are refused, because their sum depends on the order."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        row[self.field.name] = (row.get(self.field.name) or 0) + (patch.get(self.field.name) or 0)


@dataclass(frozen=True, slots=True)
class DecimalSum(Sum):
    """Add decimals, which are texts. Raises OverflowError if the sum needs more digits than its type has.

    is_bounded: false if it may have them for now.
    """

    is_bounded: bool = True

    def combine(self, row: State, patch: State) -> None:
        name, kind = self.field.name, self.field.type
        total = added(row.get(name), patch.get(name), kind.places)
        if self.is_bounded and not fits_digits(total, kind.digits):
            raise OverflowError(f'the sum "{name}" has more than the {kind.digits} digits of its column')
        row[name] = total


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


@dataclass(frozen=True, slots=True)
class DecimalExtreme(Extreme):
    """The same of decimals, which are texts."""

    def combine(self, row: State, patch: State) -> None:
        theirs, ours = patch.get(self.field.name), row.get(self.field.name)
        if theirs is not None:
            row[self.field.name] = theirs if ours is None else extreme(ours, theirs, highest=self.highest)


def sum_of(field: StateField) -> Sum:
    """The sum of values of this field's type."""
    return DecimalSum(field) if field.type.is_decimal else Sum(field)


def extreme_of(field: StateField, *, highest: bool) -> Extreme:
    """The highest or lowest value of this field's type."""
    return DecimalExtreme(field, highest) if field.type.is_decimal else Extreme(field, highest)
