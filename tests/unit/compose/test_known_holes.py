"""`make audit`: the bill has what the locks have, and what could not be asked never looks like an answer."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headwater.compose import audit
from headwater.compose.sbom import NotALock, read_packages
from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import SPARK_LOCK, read_lock
from tests.support.served import served

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `make audit` writes where nothing can be asked."""
    (tmp_path / "requirements.lock").write_text(LOCK)
    monkeypatch.chdir(tmp_path)
    assert audit.main(["--uv", "/no/uv", "--database", NOWHERE]) == audit.NOT_ASKED_EXIT
    printed = capsys.readouterr().out
    assert printed.count("NOT CHECKED") == 2
    assert "no known holes" not in printed
    made: dict[str, Any] = json.loads((tmp_path / "build" / "sbom.cdx.json").read_text())
    return made


def test_the_bill_has_every_package_of_the_lock_with_its_hashes(bill: Mapping[str, Any]) -> None:
    # read by other means than the code
    blocks = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)(.*(?:\n    .*)*)", LOCK, re.MULTILINE)
    wanted = {
        (name, version): sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)) for name, version, rest in blocks
    }
    found = {
        (each["name"], each["version"]): sorted(hash_["content"] for hash_ in each["hashes"])
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    assert found == wanted
    assert len(found) > 100
    assert all(found.values())


def test_the_bill_has_every_jar_of_the_locks_with_its_hash(bill: Mapping[str, Any]) -> None:
    wanted = set()
    for lock in (JAR_LOCK, SPARK_LOCK):
        for text, digest in re.findall(r'^"([^"]+)" = "([0-9a-f]{64})"$', lock.read_text(), re.MULTILINE):
            group, name, version = text.split(":")
            wanted.add((f"pkg:maven/{group}/{name}@{version}?type=jar", digest))
    jars = [each for each in bill["components"] if each["purl"].startswith("pkg:maven/")]
    assert {(each["purl"], each["hashes"][0]["content"]) for each in jars} == wanted
    assert len(wanted) > 100
    groups = {*read_lock(JAR_LOCK), *read_lock(SPARK_LOCK)}
    assert {entry["value"] for each in jars for entry in each["properties"]} == groups


def test_the_bill_is_a_cyclonedx_document(bill: Mapping[str, Any]) -> None:
    """What the specification requires of version 1.6."""
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert UUID(bill["serialNumber"].removeprefix("urn:uuid:")).version == 4
    assert bill["metadata"]["timestamp"].endswith("+00:00")
    for each in (*bill["components"], bill["metadata"]["component"]):
        assert each["type"] in ("library", "application")
        assert each["name"]
        assert each["version"]
        assert all(
            hash_["alg"] == "SHA-256" and len(hash_["content"]) == 64 for hash_ in each.get("hashes", ())
        )  # fmt: skip
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references))


@pytest.mark.parametrize("lock", ["a==1\n", "a>=1 \\\n    --hash=sha256:00\n", "-e .\n", "a @ file:///a\n"])
def test_what_the_lock_does_not_pin_is_refused(lock: str) -> None:
    with pytest.raises(NotALock, match="run `make lock`"):
        read_packages(lock)


def answering(document: Any, stderr: str = "") -> Any:
    output = document if isinstance(document, str) else json.dumps(document)
    return lambda *_, **__: SimpleNamespace(stdout=output, stderr=stderr)


HOLE = {"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}


@pytest.mark.parametrize(
    ("answer", "holes", "not_asked"),
    [
        ({"dependencies": [{"name": "a", "version": "1", "vulns": []}]}, [], ""),
        (
            {"dependencies": [{"name": "a", "version": "2.0", "vulns": [HOLE]}]},
            ["a 2.0: PYSEC-1, fixed in 2.1"],
            "",
        ),
        # pip-audit says "No known vulnerabilities found" here, with exit code 0
        ({"dependencies": [{"name": "a", "skip_reason": "not found"}]}, [], "does not know 1 of 1: a"),
        ({"dependencies": []}, [], "none was asked about"),
        ("", [], "cannot resolve"),
    ],
)
def test_answers_of_pip_audit(answer: Any, holes: list[str], not_asked: str) -> None:
    found = audit.of_packages("uv", Path("lock"), answering(answer, "Trace:\ncannot resolve"))
    assert list(found.holes) == holes
    assert not_asked in found.not_asked
    assert bool(found.not_asked) == bool(not_asked)


def test_a_pip_audit_that_hangs_is_no_answer() -> None:
    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("uv", 1)

    assert "cannot run" in audit.of_packages("uv", Path("lock"), hang).not_asked


@contextmanager
def database(answer: Any) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers as the database does, and what it was asked."""
    asked: list[Any] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
            asked.extend(each["package"]["purl"] for each in queries)
            body = json.dumps(answer(queries)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with served(Answering) as url:
        yield url, asked


JARS = [jar for group in audit.locked_groups() for jar in group.jars]


def test_all_jars_are_asked_about_and_holes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AT_ONCE", 100)
    bad = JARS[120]
    name = f"pkg:maven/{bad.coordinate.organisation}/{bad.coordinate.module}@{bad.coordinate.version}"

    def answer(queries: list[Any]) -> Any:
        return {"results": [{"vulns": [{"id": "G"}]} if each["package"]["purl"] == name else {} for each in queries]}

    with database(answer) as (address, asked):
        found = audit.of_jars(address, list(dict.fromkeys(JARS)))
    assert found == audit.Findings("jars", [f"{bad.coordinate}: G"])
    assert len(asked) == len(set(JARS))


def test_an_answer_that_goes_on_is_not_fine() -> None:
    """The database ends a long answer with a token, maybe before the first hole."""
    with database(lambda _: {"results": [{"next_page_token": "t"}, {}]}) as (address, _):
        found = audit.of_jars(address, JARS[:2])
    assert not found.holes and str(JARS[0].coordinate) in found.not_asked
    assert audit.report([found]) == audit.NOT_ASKED_EXIT


@pytest.mark.parametrize("answer", [{"results": []}, {}, [], {"results": None}])
def test_an_answer_that_is_none_is_not_fine(answer: Any) -> None:
    with database(lambda _: answer) as (address, _):
        assert audit.of_jars(address, JARS[:2]).not_asked


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([audit.Findings("a"), audit.Findings("b")], 0),
        ([audit.Findings("a", ["x"]), audit.Findings("b", (), "away")], 1),
        ([audit.Findings("a"), audit.Findings("b", (), "away")], 3),
    ],
)
def test_exit_codes(found: list[audit.Findings], code: int) -> None:
    assert audit.report(found) == code
