"""The changes from one version of an event to the next, as small steps that both Python and Spark can apply.

    class PriceChanged(Event, type="listing.price_changed", version=3, history=(
        after(1, rename("amount", "price")),
        after(2, default("currency", "USD"), convert("price", scaled(100))),
    )): ...

This reads: after version 1, `amount` was renamed to `price`; after version 2, `currency` was added, and `price` became
cents. The steps of one version are applied in their order. Null stays null in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventlog.integers import fits_64_bits

Kind = type
"""The kind of a field: str, int, float, bool, datetime, or object for everything else."""

MAX_NUMBER_CHARACTERS: Final = 40
"""The longest text that `parsed` reads; longer texts are not numbers."""


def name_of(kind: Kind | None) -> str:
    """The name of a kind in an error message."""
    return "value of unknown kind" if kind is None else "other value" if kind is object else kind.__name__


@dataclass(frozen=True, slots=True)
class Scaled:
    """See `scaled`."""

    by: int | float

    def source(self, target: Kind | None) -> Kind:
        """The kind of a field that becomes `target` (None: unknown); raises ValueError if there is none."""
        if target is None:
            return object
        if target not in (int, float) or (target is int and not isinstance(self.by, int)):
            raise ValueError(f"scaled({self.by!r}) does not give a {name_of(target)}")
        return target


@dataclass(frozen=True, slots=True)
class Rounded:
    """See `rounded`."""

    times: float

    def source(self, target: Kind | None) -> Kind:
        """See Scaled.source."""
        if target not in (int, None):
            raise ValueError(f"rounded() gives an int, not a {name_of(target)}")
        return float


@dataclass(frozen=True, slots=True)
class Parsed:
    """See `parsed`."""

    kind: type[int] | type[float]

    def source(self, target: Kind | None) -> Kind:
        """See Scaled.source."""
        if target not in (self.kind, None):
            raise ValueError(f"parsed({self.kind.__name__}) does not give a {name_of(target)}")
        return str


@dataclass(frozen=True, slots=True)
class Written:
    """See `written`."""

    def source(self, target: Kind | None) -> Kind:
        """See Scaled.source."""
        if target not in (str, None):
            raise ValueError(f"written() gives a str, not a {name_of(target)}")
        return int


@dataclass(frozen=True, slots=True)
class Widened:
    """See `widened`."""

    def source(self, target: Kind | None) -> Kind:
        """See Scaled.source."""
        if target not in (float, None):
            raise ValueError(f"widened() gives a float, not a {name_of(target)}")
        return int


@dataclass(frozen=True, slots=True)
class Recoded:
    """See `recoded`."""

    words: tuple[tuple[str, str], ...]

    def source(self, target: Kind | None) -> Kind:
        """See Scaled.source."""
        if target not in (str, None):
            raise ValueError(f"recoded() gives a str, not a {name_of(target)}")
        return str


Conversion = Scaled | Rounded | Parsed | Written | Widened | Recoded


@dataclass(frozen=True, slots=True)
class Rename:
    """See `rename`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Default:
    """See `default`."""

    field: str
    value: Any


@dataclass(frozen=True, slots=True)
class Drop:
    """See `drop`."""

    field: str


@dataclass(frozen=True, slots=True)
class Convert:
    """See `convert`."""

    field: str
    how: Conversion


@dataclass(frozen=True, slots=True)
class Split:
    """See `split`."""

    field: str
    into: tuple[str, ...]
    at: str


Step = Rename | Default | Drop | Convert | Split


@dataclass(frozen=True, slots=True)
class Change:
    """See `after`."""

    version: int
    steps: tuple[Step, ...]


def after(version: int, *steps: Step) -> Change:
    """The changes to the fields after `version`, which make the next version."""
    return Change(version, steps)


def rename(old: str, new: str) -> Rename:
    """The field `old` is now called `new`."""
    return Rename(old, new)


def default(field: str, value: Any) -> Default:
    """`field` was added; older events get this `value` (in JSON types)."""
    return Default(field, value)


def drop(field: str) -> Drop:
    """`field` was removed."""
    return Drop(field)


def convert(field: str, how: Conversion) -> Convert:
    """`field` now has another type or unit: see `scaled`, `rounded`, `parsed`, `written`, `widened`, `recoded`."""
    return Convert(field, how)


def split(field: str, into: tuple[str, ...], at: str) -> Split:
    """The text `field` was split into several fields at `at`; the last one gets the rest, missing parts are empty."""
    return Split(field, tuple(into), at)


def scaled(by: int | float) -> Scaled:
    """A number in another unit: multiplied by `by`. A result of more than 64 bits cannot be read."""
    if isinstance(by, int) and not fits_64_bits(by):
        raise ValueError(f"scaled({by!r}): give a number within 64 bits")
    return Scaled(by)


def rounded(times: float = 1.0) -> Rounded:
    """A float becomes the integer nearest to `times` its value, rounding half to even: dollars to cents with 100."""
    return Rounded(float(times))


def parsed(kind: type[int] | type[float]) -> Parsed:
    """A text becomes the number that it contains (as in JSON, but with leading zeros); other texts cannot be read."""
    return Parsed(kind)


def written() -> Written:
    """An integer becomes a text with its digits."""
    return Written()


def widened() -> Widened:
    """An integer becomes a float."""
    return Widened()


def recoded(words: Mapping[str, str]) -> Recoded:
    """A text in `words` becomes another text; other texts do not change."""
    return Recoded(tuple(words.items()))
