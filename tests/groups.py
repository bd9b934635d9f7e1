"""The groups of the complete suite: where their tests are, which folders they prove, and when each last passed.

`tests/complete.txt` has a line for each group: its name, the commit on which all its tests last passed, and the time of
that commit. `python -m tests.run complete` writes it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COMPLETE: Final = ROOT / "tests" / "complete.txt"

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "acceptance": ("tests/acceptance", "tests/unit/headwater"),
    "api": ("tests/integration/api", "tests/unit/api"),
    "cluster": ("tests/integration/cluster",),
    "commands": ("tests/integration/commands", "tests/unit/commands", "tests/unit/simulation"),
    "contracts": ("tests/contracts", "tests/unit/eventlog"),
    "projections": ("tests/integration/projections", "tests/unit/projections"),
    "replay": ("tests/integration/replay", "tests/unit/replay"),
    "secured": ("tests/integration/secured",),
    "sources": ("tests/integration/sources", "tests/unit/capturing"),
    "spark": ("tests/integration/projections_spark", "tests/unit/projections_spark"),
    "stack": ("tests/containers", "tests/integration/compose", "tests/unit/compose"),
}
"""The folders of the tests of each group."""

PROVEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "api/*": ("api", "secured"),
    "commands/*": ("commands", "contracts"),
    "commands/reacting/*": ("commands", "sources"),
    "compose/*": ("stack", "acceptance"),
    "docs/*": ("acceptance",),
    "eventlog/*": ("contracts", "commands"),
    "eventlog/capturing/*": ("sources",),
    "eventlog/erasing/*": ("commands", "replay", "contracts"),
    "eventlog/kafka/*": ("cluster", "contracts", "commands", "secured"),
    "eventlog/personal/*": ("acceptance", "contracts"),
    "headwater/*": ("acceptance",),
    "projections/*": ("projections", "contracts"),
    "projections/folding/*": ("replay", "contracts"),
    "projections/reading/*": ("replay", "contracts", "spark"),
    "projections/generations/*": ("replay", "projections", "contracts"),
    "projections/spark/*": ("replay", "spark"),
    "projections/stores/*": ("contracts", "projections", "replay"),
    "projections/stream/*": ("replay", "spark"),
    "projections/table/*": ("contracts", "projections", "spark"),
    "replay/*": ("replay",),
    "requirements.lock": tuple(GROUPS),
}
"""The groups that prove the files of a pattern. Of several patterns that match a file, the longest counts; a test is
proven by the group that it belongs to, and any other file by none.
"""


@dataclass(frozen=True)
class Passed:
    """When a group last passed."""

    commit: str
    time: str
    """That of the commit in UTC, in ISO 8601; "" if the group never passed."""


def groups_of(file: str) -> tuple[str, ...]:
    """The groups that prove a file, whose path begins at the root of the repository."""
    if file.startswith("tests/"):
        return tuple(name for name, folders in GROUPS.items() if file.startswith(tuple(f"{path}/" for path in folders)))
    matching = [pattern for pattern in PROVEN_BY if fnmatchcase(file, pattern)]
    return PROVEN_BY[max(matching, key=len)] if matching else ()


def last_passed(file: Path = COMPLETE) -> dict[str, Passed]:
    """When each group last passed."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    known = {name: Passed(commit, time) for name, commit, time in (line.split() for line in lines if line[:1] != "#")}
    return {name: known.get(name, Passed("", "")) for name in GROUPS}


def note_passed(groups: Iterable[str], file: Path = COMPLETE, root: Path = ROOT) -> None:
    """Write to `tests/complete.txt` that these groups passed on the current commit."""
    now = Passed(*_git(root, "log", "-1", "--format=%h %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ").split())
    passed = last_passed(file) | dict.fromkeys(groups, now)
    lines = [f"{name} {at.commit} {at.time}" for name, at in sorted(passed.items()) if at.commit]
    title = "# group of tests (tests/groups.py), commit on which all of it last passed, time of that commit"
    file.write_text("\n".join([title, *lines, ""]), encoding="utf-8")


def touched_groups(passed: Mapping[str, Passed], root: Path = ROOT) -> list[str]:
    """The groups that prove a file which changed since they last passed, the least recently passed first."""
    changed: dict[str, list[str]] = {}
    for commit in {at.commit for at in passed.values()}:
        try:
            changed[commit] = (
                _git(root, "diff", "--name-only", "--no-renames", commit, "--").splitlines() if commit else []
            )
        except subprocess.CalledProcessError:  # a commit that this clone does not have
            changed[commit] = []
            passed = {name: Passed("", "") if at.commit == commit else at for name, at in passed.items()}
    touched = [
        name for name, at in passed.items()
        if not at.commit or any(name in groups_of(file) for file in changed[at.commit])
    ]  # fmt: skip
    return sorted(touched, key=lambda name: (passed[name].time, name))


def is_committed(root: Path = ROOT) -> bool:
    """Whether the work tree is that of the current commit."""
    return not _git(root, "status", "--porcelain").strip()


def _git(root: Path, *words: str) -> str:
    environment = {**os.environ, "TZ": "UTC"}
    return subprocess.run(["git", *words], cwd=root, env=environment, capture_output=True, text=True, check=True).stdout
