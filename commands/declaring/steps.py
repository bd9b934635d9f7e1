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

from headwater.eventlog.declaring import WrongArguments, shown, word
from headwater.eventlog.integers import fits_64_bits

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
class Move:
    """See `move`."""

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


@dataclass(frozen=True, slots=True)
class RenameType:
    """See `rename_type`."""

    old: str
    new: str


Step = Rename | Move | Default | Drop | Convert | Split | RenameType


@dataclass(frozen=True, slots=True)
class Change:
    """See `after`."""

    version: int
    steps: tuple[Step, ...]


@word('after(1, rename("amount", "cents"))')
def after(version: int, *steps: Step) -> Change:
    """The changes to the fields after `version`, which make the next version."""
    return Change(version, steps)


@word('rename("amount", "cents")')
def rename(old: str, new: str) -> Rename:
    """The field `old` is now called `new`."""
    return Rename(old, new)


@word('move("city", "address.city")')
def move(old: str, new: str) -> Move:
    """The field `old` is now in another place: in a nested model, out of one, or in another one."""
    return Move(old, new)


@word('default("currency", "USD")')
def default(field: str, value: Any) -> Default:
    """`field` was added; older events get this `value` (in JSON types)."""
    return Default(field, value)


@word('drop("note")')
def drop(field: str) -> Drop:
    """`field` was removed."""
    return Drop(field)


@word('convert("price", scaled(100))')
def convert(field: str, how: Conversion) -> Convert:
    """`field` now has another type or unit: see `scaled`, `rounded`, `parsed`, `written`, `widened`, `recoded`."""
    return Convert(field, how)


@word('split("name", into=("first", "last"), at=" ")')
def split(field: str, into: tuple[str, ...], at: str) -> Split:
    """The text `field` was split into several fields at `at`; the last one gets the rest, missing parts are empty."""
    if not isinstance(into, tuple | list):
        raise WrongArguments(f'split() has into={shown(into)}, which is no tuple: write into=("first", "last")')
    return Split(field, tuple(into), at)


@word('rename_type("parcel.weighed", "parcel.measured")')
def rename_type(old: str, new: str) -> RenameType:
    """The type of the event is now called `new`; versions until this one were recorded as `old`."""
    return RenameType(old, new)


@word("scaled(100)")
def scaled(by: int | float) -> Scaled:
    """A number in another unit: multiplied by `by`. A result of more than 64 bits cannot be read."""
    if isinstance(by, bool) or not isinstance(by, int | float):
        raise WrongArguments(f"scaled() is given {shown(by)}, which is no number: write scaled(100)")
    if isinstance(by, int) and not fits_64_bits(by):
        raise ValueError(f"scaled({by!r}): give a number within 64 bits")
    return Scaled(by)


@word("rounded(100)")
def rounded(times: float = 1.0) -> Rounded:
    """A float becomes the integer nearest to `times` its value, rounding half to even: dollars to cents with 100."""
    if isinstance(times, bool) or not isinstance(times, int | float):
        raise WrongArguments(f"rounded() is given {shown(times)}, which is no number: write rounded(100)")
    return Rounded(float(times))


@word("parsed(int)")
def parsed(kind: type[int] | type[float]) -> Parsed:
    """A text becomes the number that it contains (as in JSON, but with leading zeros); other texts cannot be read."""
    if kind not in (int, float):
        raise WrongArguments(f"parsed() is given {shown(kind)}: write parsed(int) or parsed(float)")
    return Parsed(kind)


@word("written()")
def written() -> Written:
    """An integer becomes a text with its digits."""
    return Written()


@word("widened()")
def widened() -> Widened:
    """An integer becomes a float."""
    return Widened()


@word('recoded({"new": "open"})')
def recoded(words: Mapping[str, str]) -> Recoded:
    """A text in `words` becomes another text; other texts do not change."""
    if not (isinstance(words, Mapping) and all(isinstance(each, str) for pair in words.items() for each in pair)):
        raise WrongArguments(
            f'recoded() is given {shown(words)}, which maps no texts: write recoded({{"new": "open"}})'
        )
    return Recoded(tuple(words.items()))
