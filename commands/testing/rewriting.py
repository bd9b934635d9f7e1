"""Imports shipped test functions so that a failed `assert` shows its values, as in a user's own tests."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def with_shown_values(module: str) -> ModuleType:
    """The module of this name, with its asserts rewritten by pytest if nothing has imported it before."""
    import pytest  # noqa: PLC0415 - installed only where tests run

    if module not in sys.modules:
        pytest.register_assert_rewrite(module)
    return importlib.import_module(module)
