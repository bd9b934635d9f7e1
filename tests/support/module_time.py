"""Other clocks and pauses for one module under test."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest


def set_time(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Callable[..., Any]) -> None:
    """Let the module with this name have other functions of `time`, such as `sleep`.

    Only this module: whoever else pauses in this process, in a thread of its own, goes on as before.
    """
    monkeypatch.setattr(importlib.import_module(module), "time", SimpleNamespace(**{**vars(time), **functions}))
