"""docs/settings.md has every environment variable with its default, also those of the containers and the chart."""

from __future__ import annotations

import importlib
import re
from urllib.parse import urlsplit

import pytest
import yaml
from pydantic_core import PydanticUndefined

from headwater.compose.settings import COMPOSE_FILE
from headwater.eventlog.capturing.settings import ConnectVariables
from headwater.eventlog.programs.variables import Variables
from headwater.projections.settings import StoreVariables
from tests.support.helm_chart import GOLDEN, NAMES, programs
from tests.support.pages import ROOT, read_page, section

PAGE = read_page("settings.md")
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
        importlib.import_module(".".join(("headwater", *path.relative_to(ROOT).with_suffix("").parts)))
    found = {}
    for kind in Variables.__subclasses__():
        if kind.__module__.startswith("headwater."):
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


def is_shown(default: object, shown: str) -> bool:
    if default in ("", None, PydanticUndefined):  # or made at each start
        return shown.startswith("none") or shown == "required"
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return shown == f"`{text.rstrip('/') if urlsplit(text).netloc else text}`"


def test_the_page_has_the_default_of_each_setting() -> None:
    wrong = {name: SHOWN[name] for name, default in declared().items() if not is_shown(default, SHOWN[name])}
    assert wrong == {}
    assert len(declared()) > 40


def in_files() -> set[str]:
    """The variables that the page names where it says which ones may be in a file."""
    return set(re.findall(r"`([A-Z_<>]+)`", section(PAGE, "Secrets in files").replace("<SOURCE>", "CRM")))


def test_the_page_names_every_variable_that_may_be_in_a_file() -> None:
    named = {
        kind.variable(field)
        for kind in (StoreVariables, ConnectVariables)
        for field, declared in kind.model_fields.items()
        if not declared.repr
    }
    references = {"HEADWATER_CONNECT_KAFKA_PASSWORD", "HEADWATER_CONNECT_KAFKA_KEY"}  # of secrets, and none themselves
    assert named - references - in_files() == set()


def test_it_has_every_variable_of_the_compose_file_with_its_default() -> None:
    text = COMPOSE_FILE.read_text()
    # those of the API are of a container, whose network is its own
    inside = {"HEADWATER_API_OPEN", "HEADWATER_API_ALLOWED_HOSTS"}
    read = [found for found in re.findall(r"\$\{(HEADWATER_\w+):-([^}]*)\}", text) if found[0] not in inside]
    assert {name: SHOWN.get(name) for name, _ in read} == {name: f"`{default}`" for name, default in read}
    services = yaml.safe_load(text)["services"].values()
    passed = {name for service in services for name in service.get("environment", ()) if name.startswith("HEADWATER_")}
    assert len(passed) > 10
    assert passed <= SHOWN.keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_of_the_chart_is_documented_and_given_once(name: str) -> None:
    shown = {each.replace("<SOURCE>", "CRM") for each in re.findall(r"^\| `([A-Z_<>]+)`", PAGE, re.MULTILINE)}
    of_spark = set(re.findall(r"`([A-Z_]+)`", read_page("stream-views.md") + read_page("containers.md")))
    for program, container in programs(GOLDEN[name]).items():
        given = [entry["name"] for entry in container["env"]]
        assert len(given) == len(set(given)), program
        for each in given:
            base = each.removesuffix("_FILE")
            is_documented = each in shown or each in of_spark if base == each else base in in_files()
            assert is_documented, f"{program}: {each}"
