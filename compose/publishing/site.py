"""`make docs`: builds the site of the docs, and refuses broken links and whatever a page would load from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from headwater.compose.publishing.diagrams import draw
from headwater.eventlog.programs.modules import SAFE_PATH

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "docs"
PAGES: Final = BUILD / "pages"
"""What the site is built from: a copy of the pages, at their paths in the checkout, so that their links hold."""
SITE: Final = BUILD / "site"
DRAWN: Final = BUILD / "diagrams"
"""Diagrams that were drawn, by their source."""
CONFIGURATION: Final = ROOT / "docs" / "zensical.toml"
COPIED: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "docs/llms.txt",
    "docs/images/*",
    "docs/site.css",
    "headwater/samples/**/*.md",
    "compose/monitoring/*",
)
FACES: Final = ("headwater", "headwater.testing", "headwater.client", "headwater.folds")
"""The modules that users import from: each has a page in the reference."""
ELEMENT: Final = re.compile(
    r"""<(?!a\s|link\s[^>]*\brel=["']?(?:canonical|alternate|author|license|next|prev)\b)[a-z]+\s[^>]*>""",
    re.IGNORECASE,
)
"""What may load something without being asked: no link that a reader follows, and none that only names a page."""
ADDRESS: Final = re.compile(
    r"""\s(?:src|href|data|poster|xlink:href)=["']?((?<=")[^"]+|(?<=')[^']+|[^"'\s>]+)""", re.IGNORECASE
)
STYLE_ADDRESS: Final = re.compile(r"""(?:url\(|@import\s+(?!url\())\s*["']?([^"')\s]+)""", re.IGNORECASE)
ELSEWHERE: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


def main() -> int:
    """Build the site; returns the exit code. It needs docs/requirements.lock and nothing else of Headwater's."""
    try:
        stage()
    except (LookupError, RuntimeError) as error:  # of a name in the reference, of a diagram
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 1
    built = subprocess.run(
        [sys.executable, *SAFE_PATH, "-m", "zensical", "build", "--clean", "--strict"], cwd=BUILD, check=False
    )
    if built.returncode != 0:
        return built.returncode
    faults = [*wrongly_loaded(SITE)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(
        f"built {SITE.relative_to(ROOT)}: python3 -m http.server --bind 127.0.0.1 --directory {SITE.relative_to(ROOT)}"
    )
    return 0


def stage() -> None:
    """Copy the pages, draw their diagrams, and write the reference and the list of decisions.

    Raises LookupError and RuntimeError.
    """
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
    for page in sorted(PAGES.rglob("*.md")):
        draw(page, DRAWN)
    shutil.copyfile(CONFIGURATION, BUILD / CONFIGURATION.name)


def decision_list(decisions: Iterable[Path]) -> str:
    """A page with a link to each decision, by its title."""
    lines = ["# Decisions", "", "Each was costly to reverse: what was decided, why, and what else was tried.", ""]
    for file in decisions:
        title = file.read_text().partition("\n")[0].removeprefix("# ")
        number, _, words = title.partition(". ")
        lines.append(f"- {number}: [{words}]({file.name})")
    return "\n".join(lines) + "\n"


def wrongly_loaded(site: Path) -> Iterator[str]:
    """What pages and styles of the site would load from another host, or from a file that is not there; a line each."""
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text, name = file.read_text(), file.relative_to(site)
        elements = ELEMENT.findall(text) if file.suffix == ".html" else []
        addresses = [address for element in elements for address in ADDRESS.findall(element)]
        for address in addresses if file.suffix == ".html" else STYLE_ADDRESS.findall(text):
            path = unquote(address.partition("#")[0].partition("?")[0])
            if ELSEWHERE.match(address):
                yield f"{name} loads {address} from another host"
            elif (
                not address.startswith("data:")
                and not (site / path.lstrip("/") if path[:1] == "/" else file.parent / path).exists()
            ):
                yield f"{name} loads {address}, which is not there"
        if 'class="mermaid"' in text:
            yield f"{name} has a diagram, for which the theme loads a script from another host: use an image"


if __name__ == "__main__":
    sys.exit(main())
