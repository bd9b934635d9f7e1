"""Which characters differ in case only: one definition for filters that ignore case, whatever the store.

It is Unicode's simple case folding: of single characters, in no particular language. So both small sigmas are
equal, "k" and the Kelvin sign, and a small and a capital sharp s; but not "ß" and "SS", nor "i" and one without a dot.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

LETTERS: Final = 0x20000
"""Characters from here on have no case: they are ideographs, tags, and for private use."""
BLOCK: Final = 256


def folded(character: str) -> str:
    """The same character for all those that differ in case only."""
    made = character.casefold()
    if len(made) > 1:  # full case folding, as of a sharp s to "ss"; simple case folding then has the lower case, if any
        made = character.lower()
    return made if len(made) == 1 else character


def in_either_case(text: str) -> str:
    """A regular expression for `text` that ignores case, for PostgreSQL, Lucene and Python."""
    return "".join(map(_either_case, text))


def _either_case(character: str) -> str:
    alike = _alike().get(folded(character), character)
    if len(alike) > 1:
        return f"[{alike}]"
    plain = not character.isascii() or character.isalnum() or not character.isprintable()
    return character if plain else f"\\{character}"


@cache
def _alike() -> Mapping[str, str]:
    """The characters that are folded to the same one, if there are several."""
    found: dict[str, str] = {}
    for start in range(0, LETTERS, BLOCK):
        block = "".join(map(chr, range(start, start + BLOCK)))
        if block.casefold() != block:  # few blocks have letters with two cases
            for character in block:
                if (of := folded(character)) != character:
                    found[of] = found.get(of, of) + character
    return found


_alike()  # in a worker's start, and not in its first request
