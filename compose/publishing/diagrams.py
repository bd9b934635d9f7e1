"""Draws the Mermaid diagrams of pages as SVG files, so that the site needs no script."""

from __future__ import annotations

import hashlib
import re
from html import escape
from pathlib import Path
from typing import Final

MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE: Final = re.compile(r"^ +accTitle: (.+)$", re.MULTILINE)
FOLDER: Final = "diagrams"
"""Beside the page. docs/site.css inverts the images in it where the page is dark."""
SETTINGS: Final = {
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "nodeSpacing": 30, "rankSpacing": 36},
    "sequence": {"actorMargin": 24, "width": 110, "mirrorActors": False},
}
"""Labels are text: HTML in an SVG that is an image is not shown by every browser. Pages are narrow."""
SIZE: Final = re.compile(r' width="100%"(.*?) style="max-width: [^"]*" viewBox="(\S+ \S+ (\S+) (\S+))"')


def draw(page: Path, cache: Path) -> None:
    """Replace the diagrams of a page by images; raises RuntimeError. cache: the folder of all that was drawn."""

    def image(block: re.Match[str]) -> str:
        source = block[1]
        title = TITLE.search(source)
        if title is None:
            raise RuntimeError(f"{page.name}: a diagram has no accTitle")
        name = f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.svg"
        if not (cache / name).exists():
            cache.mkdir(parents=True, exist_ok=True)
            (cache / name).write_text(svg_of(source, page.name))
        target = page.parent / FOLDER / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((cache / name).read_text())
        return f"![{escape(title[1])}]({FOLDER}/{name})"

    text = page.read_text()
    drawn = MERMAID.sub(image, text)
    if drawn != text:
        page.write_text(drawn)


def svg_of(source: str, page: str) -> str:
    """The diagram as Mermaid draws it; raises RuntimeError with its reason."""
    import mermaidx  # noqa: PLC0415 - it is in the environment of the docs only

    try:
        drawn = str(mermaidx.render(source, theme="neutral", config=SETTINGS).svg())
    except RuntimeError as error:
        raise RuntimeError(f"{page}: {error}") from error
    return SIZE.sub(r' width="\3" height="\4"\1 viewBox="\2"', drawn, count=1)
