"""The digest of a query function, for fingerprints: of what it does, not how it is written."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable
from typing import Any, Final

from headwater.projections.stream.fingerprint.following import is_following
from headwater.projections.stream.fingerprint.imported import imported_texts
from headwater.projections.stream.fingerprint.syntax import declared, reached, text_of

NO_FUNCTION: Final = "its query must be a function that is declared with def in a module"


def query_digest(query: Callable[..., Any]) -> str:
    """A digest of the source of `query`, and of the functions, classes, constants and imports of its module that it
    uses.

    If it uses `in_order` or `pattern`, also through what it imports from other modules of the user, all that it imports
    from these counts as well. Comments, docstrings, formatting and annotations do not count, nor does the version of
    Python. Raises ValueError if `query` is not a function of a module, or has no source.
    """
    if not inspect.isfunction(query) or query.__qualname__ != query.__name__:
        raise ValueError(NO_FUNCTION)
    try:
        tree = ast.parse("".join(inspect.findsource(query)[0]))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the source of its query cannot be read: {error}") from error
    known = declared(tree)
    if query.__name__ not in known:
        raise ValueError(NO_FUNCTION)
    used = reached([query.__name__], known)
    texts = [text_of(name, node) for name, node in used.items()]
    if is_following(query, known):
        texts += imported_texts(query, used.values())
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
