"""docs/settings.md has every environment variable, with its default; docs/architecture.md has every topic."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventlog.programs.variables import Variables
from eventlog.settings import LogSettings
from eventlog.topics import topic_specs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()
PACKAGES = ("api", "commands", "compose", "eventlog", "projections", "replay")
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
INTERNAL = {"HEADWATER_NODE", "HEADWATER_LIVE_HELD_BY"}
"""Set by a process for those that it starts."""
SAMPLES = re.compile(r"HEADWATER_(SHOP|CRM)(_|$)")
"""Variables of a source, whose names the page has with <SOURCE>."""
READERS = [path for path in SOURCES if re.search(r"^class \w+\(Variables\):", path.read_text(), re.MULTILINE)]
SHOWN = dict(re.findall(r"^\| `([A-Z_<>]+)`[^|]* \| ([^|]+) \|", PAGE, re.MULTILINE))


def declared() -> dict[str, object]:
    """The default of each variable of a class of settings."""
    for path in READERS:
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = {}
    for kind in Variables.__subclasses__():
        if kind.__module__.split(".")[0] in PACKAGES:
            found.update({kind.variable(name): info.default for name, info in kind.model_fields.items()})
    return found


def test_the_page_has_every_variable_that_the_code_names() -> None:
    texts = [path.read_text() for path in SOURCES]
    named = {name for text in texts for name in re.findall(r"\bHEADWATER_[A-Z_]*[A-Z]\b(?![_<])", text)}
    named |= {name for text in texts for name in re.findall(r'\benv(?:iron)?\b(?:\.get\(|\[)"([A-Z_]+)"', text)}
    named -= {name for name in named if SAMPLES.match(name)}
    assert (
        sorted(
            (named | declared().keys())
            - INTERNAL
            - SHOWN.keys()
            - {"PATH", "PYTHONPATH", "CLASSPATH", "XDG_CACHE_HOME", "SUDO_USER", "SSH_CONNECTION", "JAVA_TOOL_OPTIONS"}
        )
        == []
    )
    assert len(READERS) > 5


@pytest.mark.parametrize("name", sorted(declared()))
def test_the_page_has_the_default_of_a_setting(name: str) -> None:
    default, shown = declared()[name], SHOWN[name]
    if default in ("", None):
        assert shown.startswith("none") or shown == "required"
    else:
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert shown == f"`{text.rstrip('/') if urlsplit(text).netloc else text}`"


def test_architecture_lists_every_topic_of_a_deployment() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = re.search(r"^\| topic .*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    named = set(re.findall(r"`([^`]+)`", " ".join(line.split("|")[1] for line in table[1].splitlines())))
    assert {each.name for each in topic_specs(LogSettings())} <= named
