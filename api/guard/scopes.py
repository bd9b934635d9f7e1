"""Scopes: what a caller may do, as words such as `commands:account.open`, `views:*` and `operate`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from headwater.commands.declaring.observation import ObservationRegistry
    from headwater.commands.declaring.registry import CommandRegistry

Kind = Literal["commands", "observations", "views", "rows", "streams", "operate", "personal", "erase"]

OPERATE: Final = "operate"
ALL: Final = "*"
STREAMS: Final = "streams"
"""The view of all events: it needs `streams:*`, so it is no name of a view in a scope."""
ROWS: Final = "rows"
"""Reading all rows of a view, also those that are for others by `readable_by`."""
READING: Final = frozenset({"views", ROWS, "streams"})
"""What `operate` includes: reading everything, sending nothing."""
PERSONAL: Final = "personal"
"""Reading personal values, of what else the caller may read; `operate` does not include it."""
ERASE: Final = "erase"
PLAIN: Final = frozenset({PERSONAL, ERASE})
"""Scopes without names, beside `operate`."""
SCOPE: Final = re.compile(r"operate|personal|erase|(commands|observations|views|rows|streams):([A-Za-z0-9_.-]+\*?|\*)")
FORM: Final = (
    "commands:TYPE, observations:TYPE, views:VIEW, rows:VIEW, streams:AGGREGATE (each also with a prefix and *), "
    "operate, personal or erase"
)


@dataclass(frozen=True)
class Scopes:
    """What a caller may do. exact: kind and name. prefixes: kind and the beginning of names. plain: of PLAIN.

    Who may read all rows of a view may read the view.
    """

    exact: frozenset[tuple[str, str]] = frozenset()
    prefixes: tuple[tuple[str, str], ...] = ()
    operates: bool = False
    plain: frozenset[str] = frozenset()

    @classmethod
    def of(cls, words: Iterable[str]) -> Scopes:
        """The scopes among `words`; tokens also have words that mean something to others, such as `openid`."""
        exact, prefixes, operates = set[tuple[str, str]](), dict[tuple[str, str], None](), False
        plain = set[str]()
        for word in words:
            if SCOPE.fullmatch(word) is None:
                continue
            kind, _, name = word.partition(":")
            if word == OPERATE:
                operates = True
            elif word in PLAIN:
                plain.add(word)
            elif name.endswith(ALL):
                prefixes[kind, name.removesuffix(ALL)] = None
            else:
                exact.add((kind, name))
        exact |= {("views", name) for kind, name in exact if kind == ROWS}
        prefixes |= {("views", start): None for kind, start in prefixes if kind == ROWS}
        return cls(frozenset(exact), tuple(prefixes), operates, frozenset(plain))

    def allow(self, kind: Kind, name: str) -> bool:
        """Whether this is allowed; name: `*` for all names of the kind, which only `*` and `operate` allow."""
        if kind in PLAIN:
            return kind in self.plain
        if self.operates and (kind in READING or kind == OPERATE):
            return True
        if (kind, name) in self.exact:
            return True
        named = "" if name == ALL else name
        return any(kind == allowed and named.startswith(start) for allowed, start in self.prefixes)

    def allow_some(self, kind: Kind) -> bool:
        """Whether any name of this kind may be allowed."""
        if self.operates and kind in READING:
            return True
        return any(kind == allowed for allowed, _ in (*self.exact, *self.prefixes))


EVERYTHING: Final = Scopes.of(("commands:*", "observations:*", "views:*", "streams:*", OPERATE, *PLAIN))


@dataclass(frozen=True)
class Declared:
    """The names that scopes may have, by kind."""

    names: Mapping[str, frozenset[str]]

    def problem(self, word: str) -> str | None:
        """Why `word` is no scope of this deployment, and what to do; None if it is one.

        A prefix of views may stand for views that are made later with `replay rebuild --as`.
        """
        if SCOPE.fullmatch(word) is None:
            return f'"{word}" is not a scope: write {FORM}'
        kind, _, name = word.partition(":")
        if word == OPERATE or word in PLAIN or name == ALL:
            return None
        known = self.names[kind]
        if name.endswith(ALL):
            start = name.removesuffix(ALL)
            is_possible = kind in ("views", ROWS) or any(name.startswith(start) for name in known)
        else:
            is_possible = name in known
        if is_possible:
            return None
        hint = f"use one of {', '.join(sorted(known))}" if known else f"this deployment has no {kind}"
        if kind in ("views", ROWS):
            hint += "; for a view made with --as, write the beginning of its name and *"
        return f'the scope "{word}" names nothing in the modules of HEADWATER_MODULES: {hint}'


def declared_names(commands: CommandRegistry, observations: ObservationRegistry, views: Iterable[str]) -> Declared:
    """The names of what is declared; views: by name."""
    return Declared(
        {
            "commands": frozenset(commands.public),
            "observations": frozenset(observations.types),
            "views": (names := frozenset(views) - {STREAMS}),
            ROWS: names,
            "streams": frozenset(commands.aggregates),
        }
    )
