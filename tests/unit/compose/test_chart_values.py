"""The Helm chart's values are checked and documented, and Helm renders the golden files of them."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.support.helm_chart import (
    CHART,
    GOLDEN,
    NAMES,
    ROOT,
    SCHEMA,
    SETS,
    STOP_S,
    VALUES,
    documents,
    merged,
    named,
    programs,
    values_of,
)

HELM = os.environ.get("HELM") or shutil.which("helm")
VALID = jsonschema_rs.validator_for(SCHEMA)
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not here: put it on the path, or set HELM")


@pytest.mark.parametrize("name", [None, *NAMES])
def test_values_fit_the_schema(name: str | None) -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    problems = VALID.iter_errors(values_of(name) if name else VALUES)
    assert [f"{problem.instance_path}: {problem.message}" for problem in problems] == []


def test_the_values_in_the_documentation_fit() -> None:
    section = (ROOT / "docs" / "containers.md").read_text().partition("## Kubernetes\n")[2].partition("\n## ")[0]
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert VALID.is_valid(merged(VALUES, yaml.safe_load(shown)))
    named_values = {each for each in re.findall(r"`([A-Za-z]+\.[A-Za-z.]+)`", section) if each.split(".")[0] in VALUES}
    assert named_values >= {"spark.master", "create.enabled", "networkPolicies.metricsFrom"}
    for path in named_values - {"values.yaml"}:
        found: Any = VALUES
        for name in path.split("."):
            found = found[name]


WRONG: dict[str, dict[str, Any]] = {
    "a value that the chart does not have": {"api": {"replica": 3}},
    "a password in an address": {"postgres": {"address": "postgresql://headwater:secret@postgres/headwater"}},
    "a password at its end": {"postgres": {"address": "postgresql://postgres/headwater?user=h&password=secret"}},
    "a secret as a setting": {"settings": {"HEADWATER_CRM_SALT": "abc"}},
    "a token in a setting": {"api": {"settings": {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=abc"}}},
    "a setting that has a value of its own": {"settings": {"HEADWATER_PARTITIONS": "8"}},
    "a number as a setting, which Helm may write as 1e+06": {"settings": {"HEADWATER_BODY_LIMIT_BYTES": 1000000}},
    "a handler that is killed in a transaction": {"handler": {"terminationGracePeriodSeconds": 30}},
    "two read sides": {"projections": {"replicas": 2}},
    "an ingress without a host": {"api": {"ingress": {"enabled": True}}},
    "a claim without a folder": {"checkpoints": {"claim": "shared", "location": "s3a://bucket"}},
    "no disruption at all, so that no node is drained": {"disruptionBudget": {"maxUnavailable": 0}},
    "a secret in Spark's file": {"spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": "abc"}}},
    "another one": {"spark": {"conf": {"spark.hadoop.fs.azure.account.key.bank.dfs.core.windows.net": "abc"}}},
    "a password of Spark": {"spark": {"conf": {"spark.ssl.keyStorePassword": "abc"}}},
    "a password in a setting": {"settings": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@collector:4318"}},
    "a password of Java": {"settings": {"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStorePassword=secret"}},
    "an issuer that anybody on the way can be": {"api": {"oidc": {"issuer": "http://login.example.com"}}},
    "a host with a space": {"api": {"ingress": {"enabled": True, "hosts": ["bank example"]}}},
    "an order for the shell as a module": {"modules": ["bank;ls"]},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused(change: dict[str, Any]) -> None:
    assert not VALID.is_valid(merged(values_of("small"), change))


def test_the_schema_and_the_values_have_the_same_names() -> None:
    def walk(schema: Mapping[str, Any], values: Any, path: str) -> Iterator[str]:
        if "$ref" in schema:
            schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        if "properties" in schema and values != {}:
            names = schema["properties"].keys() - ({"global"} if path == "" else set())
            yield from (f"{path}.{name}" for name in names ^ values.keys())
            for name in names & values.keys():
                yield from walk(schema["properties"][name], values[name], f"{path}.{name}")

    account = re.compile(r"\.(account\.(secrets|kafkaCertificate)|scheduling)\b")
    assert [each for each in walk(SCHEMA, VALUES, "") if not account.search(each)] == []


def test_templates_read_values_that_there_are() -> None:
    for file in sorted((CHART / "templates").iterdir()):
        for path in re.findall(r"\.Values\.([A-Za-z][\w.]*)", file.read_text()):
            found: Any = VALUES
            for name in path.split("."):
                assert isinstance(found, dict) and name in found, f"{file.name}: {path}"
                found = found[name]


def test_least_grace_periods_are_those_that_programs_need() -> None:
    least = {
        name: SCHEMA["properties"][name]["properties"]["terminationGracePeriodSeconds"]["minimum"] for name in STOP_S
    }
    assert least == STOP_S


def test_the_chart_has_the_version_of_headwater_and_no_wheel_or_image_has_the_chart() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["project"]["version"]
    assert "headwater/compose/chart" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules.index("compose/chart") > rules.index("!compose")


@needs_helm
@pytest.mark.parametrize("name", NAMES)
def test_the_golden_files_are_what_helm_renders(name: str) -> None:
    words = ["template", "bank", str(CHART), "--namespace", "bank", "--values", str(SETS / f"{name}.yaml")]
    ran = helm(*words)
    assert ran.returncode == 0, ran.stderr
    again = f"run: helm {' '.join(words)} > {SETS / 'golden' / name}.yaml".replace(f"{ROOT}/", "")
    assert named(documents(ran.stdout)) == named(GOLDEN[name]), again


@needs_helm
@pytest.mark.parametrize("name", NAMES)
def test_helm_finds_no_fault(name: str) -> None:
    # a job of `replay` is no part of a release, and kubectl gives it its name
    words = ("--values", str(SETS / f"{name}.yaml"), "--set-json", "replay.words=[]")
    ran = helm("lint", str(CHART), "--strict", *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr


REFUSED: dict[str, dict[str, Any]] = {
    "set image.repository to the image with your package": {"image": {"repository": ""}},
    "set modules": {"modules": []},
    "set kafka.servers": {"kafka": {"servers": ""}},
    "the registry of views is in PostgreSQL": {"postgres": {"address": ""}},
    "the API must know its callers": {"api": {"keys": {"name": ""}}},
    "set kafka.user, or account.kafkaUser of": {"kafka": {"security": "SASL_SSL"}},
    "set secrets.kafkaPassword.name, or account.secrets.kafkaPassword.name of": {
        "kafka": {"security": "SASL_SSL", "user": "bank"}
    },
    "PLAINTEXT uses no user and no password": {"secrets": {"kafkaPassword": {"name": "kafka"}}},
    "SSL uses no user and no password": {"kafka": {"security": "SSL", "user": "bank"}},
    "PLAINTEXT uses no certificates": {"kafka": {"ca": {"name": "kafka-ca"}}},
    "SASL_PLAINTEXT uses no certificates": {
        "kafka": {"security": "SASL_PLAINTEXT", "user": "bank", "certificate": {"name": "bank"}},
        "secrets": {"kafkaPassword": {"name": "kafka"}},
    },
    "either api.open, or": {"api": {"open": True}},
    "set api.oidc.issuer": {"api": {"oidc": {"audience": "bank"}}},
    "secrets.masterKey": {"secrets": {"personKeys": {"name": "keys"}}},
    "secrets.personKeys": {"secrets": {"masterKey": {"name": "keys"}}},
    "projections.clearColumns needs secrets.personKeys": {"projections": {"clearColumns": True}},
    "set sources.databases": {"sources": {"enabled": True}, "connect": {"address": "http://connect:8083"}},
    "set connect.address, secrets.connect.name or sources.account.secrets.connect.name": {
        "sources": {"enabled": True, "databases": {"CRM": {"database": {"name": "crm", "key": "database"}}}}
    },
    "set networkPolicies.servers.checkpoints.ports": {
        "networkPolicies": {"enabled": True},
        "checkpoints": {"location": "s3a://checkpoints"},
    },
    "set networkPolicies.servers.traces.ports": {
        "networkPolicies": {"enabled": True},
        "handler": {"settings": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}},
    },
    "set networkPolicies.sparkPeers": {
        "networkPolicies": {"enabled": True},
        "spark": {"master": "spark://spark:7077"},
    },
    "the API listens on 18080": {"api": {"workers": 8}, "metrics": {"port": 18075}},
}
"""What programs would refuse at their start, or what would let them hang, with what Helm says."""


@needs_helm
@pytest.mark.parametrize("problem", REFUSED)
def test_values_that_do_not_fit_together_are_refused(problem: str, tmp_path: Path) -> None:
    change = tmp_path / "change.yaml"
    change.write_text(yaml.safe_dump(REFUSED[problem]))
    ran = helm("template", "bank", str(CHART), "--values", str(SETS / "small.yaml"), "--values", str(change))
    assert ran.returncode != 0 and problem in ran.stderr


def removable(schema: Mapping[str, Any], values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of values that have a default, but those of secrets without a name."""
    reference = schema.get("$ref", "").rpartition("/")[2]
    if reference in ("secret", "certificate", "server"):
        return
    for name, each in (SCHEMA["$defs"].get(reference, {}) | schema).get("properties", {}).items():
        if name in values and values[name] != "":
            yield (*path, name)
            yield from removable(each, values[name], (*path, name))


def test_a_value_that_is_taken_away_is_missed() -> None:
    """`handler: {volume: null}` takes the default away; so does a name with nothing below it."""
    paths, unnoticed, values = [*removable(SCHEMA, VALUES)], [], values_of("small")
    for path in paths:
        without = copy.deepcopy(values)
        holder = without
        for name in path[:-1]:
            holder = holder[name]
        del holder[path[-1]]
        problems = VALID.iter_errors(without)
        if not any(f'"{path[-1]}" is a required property' in problem.message for problem in problems):
            unnoticed.append(".".join(path))
    assert unnoticed == []
    assert len(paths) > 100


@needs_helm
def test_a_release_whose_name_begins_with_a_digit_needs_another() -> None:
    words = ("template", "1bank", str(CHART), "--values", str(SETS / "small.yaml"))
    ran = helm(*words)
    assert ran.returncode != 0 and "set fullnameOverride" in ran.stderr
    assert helm(*words, "--set", "fullnameOverride=bank").returncode == 0


@needs_helm
def test_a_verb_of_replay_is_a_job_of_its_own() -> None:
    words = ("template", "bank", str(CHART), "--values", str(SETS / "small.yaml"), "-s", "templates/replay-job.yaml")
    ran = helm(*words, "--set", "replay.words={rebuild,listings}")
    (job,) = documents(ran.stdout)
    assert job["kind"] == "Job" and programs([job])["replay"]["args"] == ["replay", "rebuild", "listings"]
    assert helm(*words).returncode != 0


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM
    return subprocess.run([HELM, *words], capture_output=True, text=True, timeout=60, check=False)
