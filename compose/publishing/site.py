"""`make docs`: builds the site of the docs; zensical refuses broken links."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headwater.eventlog.programs.modules import SAFE_PATH

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "docs"
PAGES: Final = BUILD / "pages"
"""What the site is built from: a copy of the pages, at their paths in the checkout, so that their links hold."""
SITE: Final = BUILD / "site"
CONFIGURATION: Final = ROOT / "docs" / "zensical.toml"
COPIED: Final = (
    "README.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "docs/llms.txt",
    "docs/images/*",
    "headwater/samples/**/*.md",
    "compose/monitoring/*",
)
FACES: Final = ("headwater", "headwater.testing", "headwater.client", "headwater.folds")
"""The modules that users import from: each has a page in the reference."""


def main() -> int:
    """Build the site; returns the exit code. It needs docs/requirements.lock and nothing else of Headwater's."""
    try:
        stage()
    except LookupError as error:  # of a name in the reference
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 1
    built = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "zensical", "build", "--clean", "--strict"], cwd=BUILD, check=False
    )
    if built.returncode == 0:
        site = SITE.relative_to(ROOT)
        print(f"built {site}: python3 -m http.server --bind 127.0.0.1 --directory {site}")
    return built.returncode


def stage() -> None:
    """Copy the pages, and write those that are made: the reference, and the list of decisions; raises LookupError."""
    from headwater.compose.publishing.reference import pages  # noqa: PLC0415 - its library is in the environment of the docs only

    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in COPIED:
        for file in ROOT.glob(pattern):
            if file.is_file():
                target = PAGES / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    (PAGES / "reference").mkdir()
    for name, text in pages(ROOT):
        (PAGES / "reference" / name).write_text(text)
    decisions = PAGES / "docs" / "decisions"
    (decisions / "index.md").write_text(decision_list(sorted(decisions.glob("*.md"))))
    shutil.copyfile(CONFIGURATION, BUILD / CONFIGURATION.name)


def decision_list(decisions: Iterable[Path]) -> str:
    """A page with a link to each decision, by its title."""
    lines = ["# Decisions", "", "Each was costly to reverse: what was decided, why, and what else was tried.", ""]
    for file in decisions:
        title = file.read_text().partition("\n")[0].removeprefix("# ")
        number, _, words = title.partition(". ")
        lines.append(f"- {number}: [{words}]({file.name})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
