"""docs/metrics.md has every metric, with its labels, docs/tracing.md every fact of spans; no expression has another."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import Metric

from headwater.api.middleware import ServiceMetrics
from headwater.eventlog.capturing.source_status import SourceMetrics
from headwater.eventlog.letters import CAUSES
from headwater.eventlog.programs.metrics import REGISTRY
from headwater.projections.generations.upkeep.lag import Lag
from headwater.projections.generations.upkeep.view_metrics import LetterMetrics, RebuildMetrics, Sample, families
from headwater.projections.metrics import PartMetrics
from tests.support.pages import ROOT, read_page

PAGE = read_page("metrics.md")
ALERTS = (ROOT / "compose" / "monitoring" / "alerts.yml").read_text()
for _module in (
    "headwater.api.limits",
    "headwater.api.middleware",
    "headwater.commands.handling.command_task",
    "headwater.commands.owning.ownership",
    "headwater.commands.reacting.process_task",
    "headwater.projections.generations.upkeep.view_metrics",
    "headwater.projections.metrics",
):
    importlib.import_module(_module)


def measured() -> dict[str, Metric]:
    """All metrics of Headwater's own, by their names in the text format."""
    lags = [Lag("listings", "postgres", 1, 1, "caught up", {"0": 1}, 0, 0, 0.0)]
    collected: Iterable[Metric] = (
        *REGISTRY.collect(),
        *ServiceMetrics().collect(),
        *SourceMetrics().collect(),
        *PartMetrics().collect(),
        *LetterMetrics().collect(),
        *RebuildMetrics().collect(),
        *families(Sample(1, lags)),
    )
    named = {event.name + ("_total" if event.type == "counter" else ""): event for event in collected}
    return {name: each for name, each in named.items() if name.startswith("headwater_")}


def labels(metric: Any) -> tuple[str, ...]:
    """Of a declared metric, from its collector; of a family, from the family."""
    declared = REGISTRY._names_to_collectors.get(metric.name)
    return tuple(getattr(metric, "_labelnames", None) or getattr(declared, "_labelnames", None) or ())


def rows() -> dict[str, tuple[tuple[str, ...], str]]:
    table = PAGE.partition("## All metrics")[2]
    found = re.findall(r"^\| `(headwater_\w+)` \| ([^|]*) \| ([^|]+) \|$", table, re.MULTILINE)
    return {name: (tuple(re.findall(r"`(\w+)`", named)), what) for name, named, what in found}


def test_the_table_has_every_metric_with_its_labels_and_its_help() -> None:
    assert rows() == {name: (labels(each), each.documentation.rstrip(".")) for name, each in measured().items()}


def test_the_page_lists_the_causes_of_dead_letters() -> None:
    listed = PAGE.partition("`cause` of a dead letter is one of")[2].partition(". `limit`")[0]
    assert tuple(re.findall(r'"([^"]+)"', listed)) == CAUSES


@pytest.mark.parametrize("text", [PAGE, ALERTS], ids=["page", "alerts"])
def test_expressions_name_metrics_that_exist(text: str) -> None:
    named = set(re.findall(r"headwater_\w+", text))
    suffixes = {name + suffix for name in measured() for suffix in ("", "_bucket", "_sum", "_count")}
    assert named <= suffixes
    assert len(named) > 10


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool of Prometheus is not here")
def test_the_alerts_name_what_is_at_fault_and_nothing_else() -> None:
    rules = ROOT / "compose" / "monitoring" / "alerts_test.yml"
    done = subprocess.run(["promtool", "test", "rules", str(rules)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_traces_has_every_fact_of_a_span_and_no_other() -> None:
    files = [path for package in ("api", "commands", "projections") for path in (ROOT / package).rglob("*.py")]
    made = {fact for path in files for fact in re.findall(r'"((?:headwater|http)\.[a-z_.]+)": ', path.read_text())}
    assert len(made) > 10
    assert made == set(re.findall(r"`((?:headwater|http)\.[a-z_.]+)`", read_page("tracing.md")))
