"""What all declarations share, whichever package they belong to."""

from __future__ import annotations


class WrongDeclaration(Exception):
    """Something is declared wrongly: the message names it, and says what to write.

    The errors of each package for its own declarations derive from it.
    """
