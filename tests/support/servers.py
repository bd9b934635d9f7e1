"""What a test does whose server is not installed on this machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def without_server(what_to_install: str) -> NoReturn:
    """Skip the test, as not everybody installs every engine; fail it in CI, where nobody reads what was skipped."""
    if os.environ.get("CI"):
        pytest.fail(what_to_install)
    pytest.skip(what_to_install)
