"""What the Helm chart renders keeps what docs/containers.md promises; it is in golden files, so Helm is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from headwater.compose.containers import health
from headwater.replay.rebuild import REFUSED_EXIT
from tests.support.helm_chart import (
    DRAIN_S,
    GOLDEN,
    NAMES,
    STOP_S,
    Document,
    golden_text,
    named,
    pods,
    programs,
    values_of,
    variables,
)

RENDERED = [pytest.param(GOLDEN[name], id=name) for name in NAMES]
SECRETS = "/run/secrets/headwater/"


@pytest.mark.parametrize("found", RENDERED)
def test_every_pod_fits_the_restricted_profile(found: list[Document]) -> None:
    kinds = {"configMap", "emptyDir", "projected", "persistentVolumeClaim", "name"}
    for name, pod in pods(found):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys(), name
        assert {key for volume in spec.get("volumes", ()) for key in volume} <= kinds, name
        assert spec["enableServiceLinks"] is False, f"{name}: a Service may set HEADWATER_API_PORT"
        for container in spec["containers"]:
            rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True}
            assert container["securityContext"] == rights | {"capabilities": {"drop": ["ALL"]}}, name
            assert not any("hostPort" in port for port in container.get("ports", ())), name


@pytest.mark.parametrize("name", NAMES)
def test_only_what_starts_executors_may_talk_to_kubernetes(name: str) -> None:
    talks = {each for each, pod in pods(GOLDEN[name]) if pod["spec"]["automountServiceAccountToken"] is not False}
    assert talks == ({"projections", "replay"} if name == "kubernetes" else set())
    accounts = [document for document in GOLDEN[name] if document["kind"] == "ServiceAccount"]
    assert len(accounts) >= 4 and not any(account["automountServiceAccountToken"] for account in accounts)
    given = {account["metadata"]["name"] for account in accounts} | {"default"}
    assert {pod["spec"].get("serviceAccountName", "default") for _, pod in pods(GOLDEN[name])} <= given
    assert ("Role" in {document["kind"] for document in GOLDEN[name]}) == (name == "kubernetes")


@pytest.mark.parametrize("name", NAMES)
def test_secrets_are_files_or_references_and_each_file_is_there(name: str) -> None:
    assert "Secret" not in {document["kind"] for document in GOLDEN[name]}
    assert not re.search(r"://[^/\s@]*:[^/\s@]*@", golden_text(name))
    for program, pod in pods(GOLDEN[name]):
        (container,) = pod["spec"]["containers"]
        volumes = {entry["name"]: entry for entry in pod["spec"].get("volumes", ())}
        mounts = {entry["name"] for entry in container["volumeMounts"]}
        assert mounts - {"state"} == volumes.keys() - {"state"}, program
        sources = volumes.get("secrets", {}).get("projected", {}).get("sources", ())
        paths = [item["path"] for source in sources for item in source["secret"]["items"]]
        given = {} if program == "executor" else variables(container)
        read = [str(value).removeprefix(SECRETS) for value in given.values() if str(value).startswith(SECRETS)]
        assert sorted(read) == sorted(paths) and len(paths) == len(set(paths)), program
        for variable, value in given.items():
            if re.search(r"PASSWORD|SECRET|SALT|_KEY(_ID|S)?$|_FILE$", variable):
                is_reference = "secretKeyRef" in value or str(value).startswith((SECRETS, "${env:"))
                assert is_reference, f"{program}: {variable}"


@pytest.mark.parametrize("name", NAMES)
def test_a_handler_knows_no_store_and_others_what_they_use(name: str) -> None:
    given = {program: variables(container) for program, container in programs(GOLDEN[name]).items()}
    stores = re.compile(r"HEADWATER_(POSTGRES|ELASTICSEARCH|VALKEY|CONNECT)")
    assert not any(stores.match(each) for each in given["handler"])
    assert any(stores.match(each) for each in given["api"])
    assert {each for each in given if any(name.startswith(("SPARK_", "AWS_")) for name in given[each])} <= {
        "projections",
        "replay",
    }


def test_only_what_opens_personal_values_gets_their_keys() -> None:
    given = {name: variables(program).keys() for name, program in programs(GOLDEN["production"]).items()}
    for variable in ("HEADWATER_KEYS_FILE", "HEADWATER_MASTER_KEY_FILE"):
        assert {name for name in given if variable in given[name]} == {"api", "handler", "replay"}


def test_each_program_has_an_account_of_its_own() -> None:
    users = {
        name: variables(program)["HEADWATER_KAFKA_USER"] for name, program in programs(GOLDEN["production"]).items()
    }
    assert users == {
        "api": "bank_api",
        "handler": "bank_handler",
        "projections": "bank_projections",
        "sources": "bank_sources",
        **dict.fromkeys(("replay", "plan", "create"), "bank_operator"),
    }
    first: dict[str, str] = {}
    for name, pod in pods(GOLDEN["production"]):
        (secrets,) = (entry["projected"]["sources"] for entry in pod["spec"]["volumes"] if entry["name"] == "secrets")
        first[name] = secrets[0]["secret"]["name"]
    assert first["handler"] == "kafka-handler" and len(set(first.values())) == len(set(users.values()))


@pytest.mark.parametrize("found", RENDERED)
def test_every_program_has_time_to_stop(found: list[Document]) -> None:
    for name, pod in pods(found):
        if name in STOP_S:
            assert pod["spec"]["terminationGracePeriodSeconds"] >= STOP_S[name], name
    assert programs(found)["api"]["lifecycle"]["preStop"]["sleep"]["seconds"] == DRAIN_S


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("small", "registry.example.com/bank:0.1.0"),
        ("production", f"registry.example.com/bank@{values_of('production')['image']['digest']}"),
        ("streams", "registry.example.com/shop:7"),
        ("kubernetes", "registry.example.com/shop:0.1.0"),
    ],
)
def test_every_program_has_the_image_of_one_value(name: str, image: str) -> None:
    assert {program["image"] for program in programs(GOLDEN[name]).values()} == {image}


@pytest.mark.parametrize("name", NAMES)
def test_every_program_has_a_disruption_budget_or_says_why_not(name: str) -> None:
    budgets = [document for document in GOLDEN[name] if document["kind"] == "PodDisruptionBudget"]
    parts = golden_text(name).split("\n---")
    for document in GOLDEN[name]:
        if document["kind"] in ("Deployment", "StatefulSet"):
            (text,) = (
                part
                for part in parts
                if f"kind: {document['kind']}\n" in part and f"\n  name: {document['metadata']['name']}\n" in part
            )
            labels = document["spec"]["template"]["metadata"]["labels"]
            has_budget = any(selects(budget["spec"]["selector"]["matchLabels"], labels) for budget in budgets)
            assert has_budget != ("# no disruption budget: " in text), document["metadata"]["name"]


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return wanted.items() <= labels.items()


@pytest.mark.parametrize("found", RENDERED)
def test_what_selects_pods_selects_those_of_one_program_and_its_ports(found: list[Document]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(found)}
    ports = {name: {port["name"] for port in program.get("ports", ())} for name, program in programs(found).items()}
    for document in found:
        spec = document.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if document["kind"] not in ("ServiceMonitor", "Job") and selector:
            wanted = selector.get("matchLabels", selector)
            (name,) = (name for name in labels if selects(wanted, labels[name])) if wanted else ("",)
            assert document["metadata"]["labels"]["app.kubernetes.io/component"] == name
            named_ports = (
                [port.get("targetPort") for port in spec.get("ports", ())] if document["kind"] == "Service" else []
            )
            for rule in spec.get("ingress", ()) if document["kind"] == "NetworkPolicy" else ():
                named_ports += [port["port"] for port in rule.get("ports", ())]
            assert set(named_ports) <= ports.get(name, set()), document["metadata"]["name"]
    assert len(named(found)) == len(found)
    assert all(len(name) <= 63 for _, name in named(found))


def test_metrics_have_one_port_per_process() -> None:
    ports = {
        (name, program): [port["containerPort"] for port in each.get("ports", ()) if port["name"] != "http"]
        for name in NAMES
        for program, each in programs(GOLDEN[name]).items()
    }
    assert ports["small", "handler"] == ports["small", "api"] == [19400]
    assert ports["small", "projections"] == [19400, 19401, 19402], "views, live query, a loader of PostgreSQL"
    assert len(ports["production", "api"]) == len(ports["production", "handler"]) == 2
    assert len(ports["production", "projections"]) == 2 + 3
    assert len(ports["streams", "projections"]) == 3 + 2 * 2, "with stream views, two stores with two loaders each"
    assert ports["kubernetes", "projections"] == []


@pytest.mark.parametrize("name", NAMES)
def test_probes_ask_what_programs_answer(name: str) -> None:
    found = programs(GOLDEN[name])
    api = found["api"]
    scheme = "HTTPS" if values_of(name)["api"]["tls"]["name"] else "HTTP"
    for probe, path in (("startup", "/health/live"), ("readiness", "/health/ready"), ("liveness", "/health/live")):
        assert api[f"{probe}Probe"]["httpGet"] == {
            "path": path,
            "port": "http",
            "scheme": scheme,
            "httpHeaders": [{"name": "Host", "value": "localhost"}],
        }
    command = found["projections"]["readinessProbe"]["exec"]["command"]
    assert command[-2:] == [health.__name__, "projections"] and command[-1] in health.CHECKS
    assert not {"livenessProbe", "startupProbe"} & found["projections"].keys(), "a start may take hours"
    assert not any(each.endswith("Probe") for each in found["handler"])


@pytest.mark.parametrize("found", RENDERED)
def test_programs_keep_their_state_where_they_write(found: list[Document]) -> None:
    for name, container in programs(found).items():
        mount = next(entry for entry in container["volumeMounts"] if entry["name"] == "state")
        assert mount == {"name": "state", "mountPath": "/var/lib/headwater"}, name
    kept = {
        document["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: document["spec"]
        for document in found
        if document["kind"] == "StatefulSet"
    }
    assert kept.keys() == {"handler", "projections"} and kept["projections"]["replicas"] == 1
    assert kept["projections"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"


@pytest.mark.parametrize("name", ["small", "production", "streams"])
def test_an_upgrade_is_refused_if_the_plan_is(name: str) -> None:
    (job,) = (
        document
        for document in GOLDEN[name]
        if document["metadata"].get("name", "").endswith("-plan") and document["kind"] == "Job"
    )
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert programs([job])["plan"]["args"] == ["replay", "plan"]
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and REFUSED_EXIT in rule["onExitCodes"]["values"]
    assert rule["onExitCodes"]["containerName"] == "plan" == job["spec"]["template"]["spec"]["containers"][0]["name"]


def test_topics_are_created_before_the_plan_reads_them() -> None:
    weights = {
        document["metadata"]["name"]: int(document["metadata"]["annotations"]["helm.sh/hook-weight"])
        for document in GOLDEN["production"]
        if document["kind"] == "Job" and "annotations" in document["metadata"]
    }
    assert weights["bank-headwater-create"] < weights["bank-headwater-plan"]


def test_programs_reach_what_they_use_and_are_reached_by_whom_they_serve() -> None:
    policies = {
        document["metadata"]["labels"]["app.kubernetes.io/component"]: document["spec"]
        for document in GOLDEN["production"]
        if document["kind"] == "NetworkPolicy"
    }
    assert policies.keys() == {"api", "handler", "projections", "sources", "replay", "create", "plan"}
    reached = {
        name: {port["port"] for rule in policy["egress"] for port in rule.get("ports", ())}
        for name, policy in policies.items()
    }
    assert reached["handler"] == {53, 9093, 5432, 4318}, "5432: of the database with the keys of persons"
    assert reached["sources"] == {53, 9093, 8083, 5432, 3306, 4318}
    assert reached["plan"] == reached["create"] == {53, 9093, 5432, 9200, 6379, 4318}
    assert next(rule["ports"] for rule in policies["api"]["ingress"]) == [{"protocol": "TCP", "port": "http"}]
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies.values())
    assert all("from" in rule for policy in policies.values() for rule in policy.get("ingress", ()))


def test_a_cluster_reaches_the_driver_and_the_driver_reaches_it() -> None:
    spark = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "spark"}}}
    for name in ("streams", "kubernetes"):
        for document in GOLDEN[name]:
            program = document["metadata"]["labels"]["app.kubernetes.io/component"]
            if document["kind"] == "NetworkPolicy" and program in ("projections", "replay"):
                (incoming,) = document["spec"]["ingress"]
                outgoing = document["spec"]["egress"][-1]
                assert incoming["from"] == outgoing["to"] and "ports" not in incoming and "ports" not in outgoing
                (peer,) = incoming["from"]
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                assert peer == spark or labels["app.kubernetes.io/component"] == "executor"


@pytest.mark.parametrize("name", ["streams", "kubernetes"])
def test_a_change_of_sparks_file_starts_the_read_side_again(name: str) -> None:
    found = {program: pod["metadata"].get("annotations", {}) for program, pod in pods(GOLDEN[name])}
    assert {program for program in found if "checksum/spark" in found[program]} == {"projections"}
