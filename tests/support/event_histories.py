"""Random histories of an event's fields, and what each of its versions may have recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from hypothesis import strategies as st

from headwater import convert, default, drop, rename, split, upcast
from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import annotated_kind
from headwater.commands.declaring.history import Step, Upcast

Kinds = dict[str, Any]
PAST: WeakKeyDictionary[type[Event], dict[int, Kinds]] = WeakKeyDictionary()
"""By event and version, the kinds of its fields."""

ANNOTATIONS: dict[str, Any] = {
    "text": str,
    "maybe_text": str | None,
    "number": int,
    "maybe_number": int | None,
    "real": float,
    "maybe_real": float | None,
    "flag": bool,
    "at": datetime,
    "tags": list[str] | None,
}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "a b c",
        "a.b",
        "é\u2028😀",
        "İI",
        "null",
        "12",
        "-0",
        "007",
        "1e3",
        "1e400",
        "12\n",
        "+5",
        "٣",
        "1_0",
        "0x1",
    ]
)
WHOLES = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
REALS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.5, 1.5, 2.5, -0.5, 1e308, 5e-324, 0.005])
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda time: time.isoformat() + "Z")
ODD_NUMBERS = [True, 0, -1, 2**63, -(2**63) - 1, 2**64, 10**30, 1.0, 1e22, -0.0]
ODD_TEXTS = ["", "1", "1.0", "x", "nul\0l", "2026-02-30T00:00:00Z", "2026-01-02", "0000-01-01T00:00:00Z", "yesterday"]
ODD = st.sampled_from([None, *ODD_NUMBERS, *ODD_TEXTS, "2026-01-02T03:04:05Z", [], ["a"], {}, {"a": 1}])
ODD_JSON = st.sampled_from([None, 5, True, "x", {}, {"a": [1]}])
OF_KIND: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: WHOLES,
    float: REALS | WHOLES,
    bool: st.booleans(),
    datetime: TIMES,
    object: st.lists(TEXTS, max_size=3),
    None: ODD,
}


@st.composite
def events(draw: st.DrawFn, changed: int = 3) -> type[Event]:
    """An event class of several versions: every field of `ANNOTATIONS`, some of them with a past; so may its type."""
    names = itertools.count()
    fields = dict(ANNOTATIONS)
    kinds: Kinds = {"probe": str} | {name: annotated_kind(field) for name, field in fields.items()}
    version = draw(st.integers(2, 4))
    changes: list[Upcast] = []
    past = {version: dict(kinds)}
    for number in range(version - 1, 0, -1):
        steps: list[Step] = []
        for _ in range(draw(st.integers(0 if changes else 1, changed))):
            step = draw(st.sampled_from(list(UNDO)).flatmap(lambda undo: undo(kinds, f"old{next(names)}")))
            if step is not None:
                steps.insert(0, step)
        former = f"probe.probed_{number}" if draw(st.integers(0, 2)) == 0 else ""
        changes.append(upcast(number, *steps, recorded_as=former))
        past[number] = dict(kinds)
    namespace = {"__annotations__": {"probe": str, **fields}, "__module__": __name__}
    made = type("Probed", (Event,), namespace, type="probe.probed", version=version, history=changes)
    assert issubclass(made, Event)
    PAST[made] = past
    return made


Undo = Callable[[Kinds, str], st.SearchStrategy[Step | None]]


def _names(kinds: Kinds, *wanted: Any) -> list[str]:
    return sorted(name for name, kind in kinds.items() if kind in wanted)


def _renamed(kinds: Kinds, old: str) -> st.SearchStrategy[Step | None]:
    def undo(name: str) -> Step:
        kinds[old] = kinds.pop(name)
        return rename(old, name)

    return st.sampled_from(sorted(kinds)).map(undo)


def _added(kinds: Kinds, _: str) -> st.SearchStrategy[Step | None]:
    def undo(made: tuple[str, Any]) -> Step:
        kind = kinds.pop(made[0])
        return default(made[0], made[1] if kind is not None else None)

    def with_value(name: str) -> st.SearchStrategy[tuple[str, Any]]:
        values = OF_KIND[kinds[name]]
        return st.tuples(st.just(name), values | st.none() if name.startswith("maybe") else values)

    names = [name for name in sorted(kinds) if kinds[name] is not None]
    return st.sampled_from(names).flatmap(with_value).map(undo) if len(names) > 3 else st.none()


def _dropped(kinds: Kinds, old: str) -> st.SearchStrategy[Step | None]:
    def undo(name: str) -> Step:
        kinds[name] = None
        return drop(name)

    return st.just(old).map(undo)


def _converted(kinds: Kinds, _: str) -> st.SearchStrategy[Step | None]:
    def undo(made: tuple[str, Any, Any]) -> Step | None:
        name, how, kind = made
        kinds[name] = kind
        return convert(name, how)

    found = [(name, how, source) for kind, each in HOWS.items() for name in _names(kinds, kind) for how, source in each]
    return st.sampled_from(found).map(undo) if found else st.none()


def _in_cents(dollars: float) -> int:
    return round(100 * dollars)


def _in_metres(feet: float) -> float:
    return 0.3048 * feet


def _recoded(word: str) -> str:
    return {"a": "b", "12": "it's \\ 'x'", "": "nothing"}.get(word, word)


HOWS: dict[Any, list[tuple[Callable[[Any], Any], Any]]] = {
    int: [(_in_cents, float), (int, str)],
    float: [(_in_metres, float), (float, str), (float, int)],
    str: [(str, int), (_recoded, str)],
}
"""By kind, what makes it, and of which other kind."""


def _split(kinds: Kinds, old: str) -> st.SearchStrategy[Step | None]:
    def undo(made: tuple[list[str], str]) -> Step:
        names, at = made
        for name in names:
            del kinds[name]
        kinds[old] = str
        return split(old, tuple(names), at)

    names = _names(kinds, str)
    if len(names) < 2:
        return st.none()
    some = st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True)
    return st.tuples(some, st.sampled_from([" ", ".", "|", "ab", "\\", "😀", "'", "\n", "(?"])).map(undo)


UNDO: tuple[Undo, ...] = (_renamed, _added, _dropped, _converted, _converted, _split)


@st.composite
def recorded(draw: st.DrawFn, event: type[Event], version: int, oddness: int = 4) -> dict[str, Any]:
    """Data as a version may have recorded it; one in `oddness` fields is absent, null, or of another type (0: none)."""
    data: dict[str, Any] = {}
    version = min(version, event.version)
    for name, kind in PAST[event][version].items():
        fate = draw(st.integers(1, 2 * oddness)) if oddness else 3
        if fate == 1:
            continue
        as_it_was = name in PAST[event][event.version] and not event.history.changes(version, [name])
        odd = ODD_JSON if kind is object else st.none() if as_it_was and kind in (str, datetime) else ODD
        data[name] = draw(odd if fate == 2 else OF_KIND[kind])
    return data
