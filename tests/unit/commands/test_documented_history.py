"""docs/schema-evolution.md does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from commands.aggregate import Event

TEXT = (Path(__file__).parents[3] / "docs" / "schema-evolution.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_example_reads_what_version_1_recorded() -> None:
    names: dict[str, object] = {"__name__": "documented"}
    exec(compile(blocks("python")[0], "schema-evolution.md", "exec"), names)  # noqa: S102 - our own text
    event = names["PriceChanged"]
    assert isinstance(event, type) and issubclass(event, Event)
    recorded, reads = (json.loads(block) for block in blocks("json"))
    assert event.history.upcast(1, recorded) == reads
    event.model_validate(reads)


def test_every_step_is_told() -> None:
    import commands.steps

    told = {name for name in re.findall(r"\b([a-z]+)\(", TEXT)}
    steps = {name for name in re.findall(r"^def ([a-z]+)\(", Path(commands.steps.__file__).read_text(), re.MULTILINE)}
    assert steps <= told
