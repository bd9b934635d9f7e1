"""Archives of classes as files: their names say for which JVM they are, and whether they are complete."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path


def digest(java: Path, parts: Iterable[object]) -> str:
    """Stands for a Java, and for what else an archive is valid for, such as a class path."""
    java = java.resolve()
    release = java.parent.parent / "release"
    told = [str(java), release.read_text() if release.exists() else "", *map(str, parts)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def find_whole(folder: Path, stem: str, ending: str) -> Path | None:
    """The archive, if it is complete: its name has its size, because a truncated archive would end the JVM.

    stem: what its name begins with, without a dot.
    """
    whole = (each for each in folder.glob(f"{stem}.*.{ending}") if each.name.split(".")[1] == str(each.stat().st_size))
    return next(whole, None)


def keep(made: Path, stem: str, ending: str) -> Path:
    """Give a file that is complete the name by which `find_whole` finds it; returns it."""
    return made.replace(made.with_name(f"{stem}.{made.stat().st_size}.{ending}"))


def clear(folder: Path) -> None:
    """Make the folder without archives of earlier versions; raises OSError if it cannot be written to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
