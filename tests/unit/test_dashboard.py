"""The dashboard for Grafana: it is whole, reads from the top, and shows only metrics and labels that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.unit.docs.test_docs_metrics import labels, measured

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "compose" / "monitoring" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWING = [panel for panel in PANELS if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in SHOWING for target in panel["targets"]]
METRICS = {name + suffix: each for name, each in measured().items() for suffix in ("", "_bucket", "_sum", "_count")}
OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that Prometheus adds itself, or histograms have."""


def test_the_dashboard_has_what_grafana_needs() -> None:
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("headwater", "Headwater")
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in SHOWING:
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"]
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({each["refId"] for each in panel["targets"]}) == len(panel["targets"])


def test_it_reads_from_the_top() -> None:
    rows = [(panel["gridPos"]["y"], panel["title"]) for panel in PANELS if panel["type"] == "row"]
    assert [title for _, title in sorted(rows)] == ["Is it well?", "How fresh?", "How busy?", "What waits?"]
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_every_metric_exists_with_the_labels_that_are_shown() -> None:
    for title, target in TARGETS:
        expression = target["expr"]
        named = set(re.findall(r"\bheadwater_\w+", expression))
        assert named <= METRICS.keys(), title
        assert named or re.search(r"\b(up|ALERTS|process_\w+)\b", expression), f"{title} shows nothing of Headwater"
        known = OF_PROMETHEUS.union(*(labels(METRICS[name]) for name in named))
        grouped = {label for by in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in by.split(", ")}
        selected = set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", expression)) - {"alertname", "alertstate"}
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert (grouped | selected | shown) <= known, title


def test_every_metric_that_has_an_alert_is_shown() -> None:
    alerts = (ROOT / "compose" / "monitoring" / "alerts.yml").read_text()
    shown = {name for _, target in TARGETS for name in re.findall(r"\bheadwater_\w+", target["expr"])}
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert set(re.findall(r"\bheadwater_\w+", alerts)) - bases == {
        # of the same things as others that are shown
        "headwater_looks_failed_total",
        "headwater_loader_dead_letters_total",
        "headwater_part_restarts_total",
        "headwater_process_unreadable",
        "headwater_rebuild_changed_timestamp_seconds",
        "headwater_source_limit_bytes",
        "headwater_source_retained_bytes",
        "headwater_view_paused_timestamp_seconds",
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool of Prometheus is not here")
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{at}", "expr": target["expr"]} for at, (_, target) in enumerate(TARGETS)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_count_of_faults_is_zero_only_if_somebody_looked() -> None:
    """What is dead measures nothing, and a green zero would hide it."""
    from_nobody = {title for title, each in TARGETS if "vector(0)" in each["expr"]}
    assert from_nobody == {"Processes down"}  # Prometheus itself counts these
