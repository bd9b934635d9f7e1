"""The Helm chart and what it renders: its values, the sets of values of tests, and the golden files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.api.settings import GRACE_S
from headwater.commands.__main__ import KILL_S

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "compose" / "chart"
SETS: Final = ROOT / "tests" / "unit" / "compose" / "chart"
NAMES: Final = ("small", "production", "streams", "kubernetes")
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
Document = dict[str, Any]
# CSafeLoader is ten times as fast as safe_load: every process of the tests reads the golden files
VALUES: dict[str, Any] = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
DRAIN_S: Final = 5
"""How long an API that is asked to stop still takes requests."""
STOP_S: Final = {"handler": round(KILL_S) + 10, "projections": 60, "api": GRACE_S + 10 + DRAIN_S}
"""How long programs may take to stop; those of the read side's parts may take 15 s, and then a running replay ends."""


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Values as Helm merges them."""
    both = {**below}
    for name, value in above.items():
        both[name] = (
            merged(both[name], value) if isinstance(value, dict) and isinstance(both.get(name), dict) else value
        )
    return both


def values_of(name: str) -> dict[str, Any]:
    """The values of a set, with the chart's own."""
    return merged(VALUES, yaml.load((SETS / f"{name}.yaml").read_text(), yaml.CSafeLoader))


def golden_text(name: str) -> str:
    """What Helm renders for a set of values."""
    return (SETS / "golden" / f"{name}.yaml").read_text()


def documents(text: str) -> list[Document]:
    """The objects of Kubernetes in a text."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


GOLDEN: dict[str, list[Document]] = {name: documents(golden_text(name)) for name in NAMES}


def named(found: list[Document]) -> dict[tuple[str, str], Document]:
    """Objects by kind and name."""
    return {
        (document["kind"], document["metadata"].get("name") or document["metadata"]["generateName"]): document
        for document in found
    }


def pods(found: list[Document]) -> Iterator[tuple[str, Document]]:
    """The name of each program with the template of its pods."""
    for document in found:
        if "template" in document.get("spec", {}):
            template = document["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template
        for text in document.get("data", {}).values() if document["kind"] == "ConfigMap" else ():
            if "kind: Pod" in text:
                yield "executor", yaml.load(text, yaml.CSafeLoader)


def programs(found: list[Document]) -> dict[str, Document]:
    """The container of each program of Headwater."""
    return {name: pod["spec"]["containers"][0] for name, pod in pods(found) if name != "executor"}


def variables(container: Document) -> dict[str, Any]:
    """The variables of a container, with their values or where these come from."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}
