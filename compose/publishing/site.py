"""`make docs`: builds the site of the docs, and refuses broken links and whatever a page would load from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

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
ADDRESSES: Final = {
    "audio": ("src",), "embed": ("src",), "iframe": ("src",), "image": ("href",), "img": ("src",),
    "input": ("src",), "link": ("href",), "object": ("data",), "script": ("src",), "source": ("src",),
    "track": ("src",), "use": ("href", "xlink:href"), "video": ("src", "poster"),
}  # fmt: skip
"""By element, what a browser loads without being asked; a link that a reader follows is none of them."""
NOT_LOADED: Final = {"canonical", "alternate", "author", "license", "next", "prev"}
"""Relations of a <link> that only name another page."""
LOADED_BY_STYLE: Final = re.compile(r"""(?:url\(|@import\s+(?!url\())\s*["']?\s*([^"')\s]+)""", re.IGNORECASE)
ELSEWHERE: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
DIAGRAM: Final = "mermaid"
"""A class of elements for which the theme's script loads a library from another host."""


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
    if built.returncode != 0:
        return built.returncode
    faults = [*wrongly_loaded(SITE), *missing_pages(SITE)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(
        f"built {SITE.relative_to(ROOT)}: python3 -m http.server --bind 127.0.0.1 --directory {SITE.relative_to(ROOT)}"
    )
    return 0


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


def wrongly_loaded(site: Path) -> Iterator[str]:
    """What pages and styles of the site would load from another host, or from a file that is not there; a line each."""
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        reader = _Loaded()
        reader.feed(file.read_text() if file.suffix == ".html" else f"<style>{file.read_text()}</style>")
        for address in reader.found:
            if ELSEWHERE.match(address):
                yield f"{file.relative_to(site)} loads {address} from another host"
            elif not _file(site, file, address).exists():
                yield f"{file.relative_to(site)} loads {address}, which is not there"
        if reader.has_diagram:
            yield f"{file.relative_to(site)} has a diagram, for which the theme loads a script: use an image"


def _file(site: Path, page: Path, address: str) -> Path:
    path = unquote(address.partition("#")[0].partition("?")[0])
    return site / path.lstrip("/") if path.startswith("/") else page.parent / path


def missing_pages(site: Path) -> Iterator[str]:
    """The pages of the docs that the site lacks."""
    for file in sorted(PAGES.rglob("*.md")):
        name = "index.html" if file.name == "README.md" else f"{file.stem}.html"
        built = site / file.relative_to(PAGES).with_name(name)
        if not built.is_file():
            yield f"the site lacks {built.relative_to(site)}"


class _Loaded(HTMLParser):
    """Collects the addresses that a browser loads with a page, but for data in the page itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.has_diagram = self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.has_diagram |= DIAGRAM in given.get("class", "").split()
        self._add(LOADED_BY_STYLE.findall(given.get("style", "")))
        if tag != "link" or not set(given.get("rel", "").lower().split()) & NOT_LOADED:
            self._add(given.get(name, "") for name in ADDRESSES.get(tag, ()))
            self._add(each.split()[0] for each in given.get("srcset", "").split(",") if each.strip())

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._add(LOADED_BY_STYLE.findall(data))

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def _add(self, addresses: Iterable[str]) -> None:
        self.found += [each for each in addresses if each and not each.startswith(("data:", "#"))]


if __name__ == "__main__":
    sys.exit(main())
