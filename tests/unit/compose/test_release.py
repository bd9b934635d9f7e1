"""`make release`: what it refuses, what it leaves of one version; and that the bill of materials has every jar."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.compose.publishing.bill import components
from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import SPARK_LOCK, read_lock

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- Something.\n"
UV = """#!/bin/sh
case "$1" in
tool) while [ "$1" != --output-file ]; do shift; done; echo '{"components": []}' > "$2" ;;
build) while [ "$1" != --out-dir ]; do shift; done
    echo "$SOURCE_DATE_EPOCH" > "$2/headwater-1.2.3.tar.gz"
    echo wheel > "$2/headwater-1.2.3-py3-none-any.whl"
    echo '*' > "$2/.gitignore" ;;
esac
"""
ENGINE = """#!/bin/sh
case "$1" in info|build) ;; image) echo "sha256:$5" ;; *) exit 1 ;; esac
"""
BUILT = ["headwater-1.2.3-py3-none-any.whl", "headwater-1.2.3.cdx.json", "headwater-1.2.3.tar.gz"]


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{part}": "t@example.com" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    ran = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **who, **alone}, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that can be released as 1.2.3."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "headwater"\nversion = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / ".gitignore").write_text("dist/\n.venv/\n")
    (folder / "requirements.lock").touch()
    shutil.copy(ROOT / "Makefile", folder)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All of it")
    (folder / ".venv").mkdir()
    (folder / ".venv" / ".installed").touch()  # so nothing is installed
    return folder


def release(checkout: Path, uv: str = UV, engine: str = "exit 1") -> subprocess.CompletedProcess[str]:
    """Run it with programs that stand in for uv and a container engine; the environment is that of the tests."""
    given = {"UV": program(checkout.parent / "uv", uv), "ENGINE": program(checkout.parent / "podman", engine)}
    variables = [f"{name}={value}" for name, value in {**given, "PY": sys.executable}.items()]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", "release", *variables],
        cwd=checkout,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("touch new.py", "changes that are not committed"),
        pytest.param(
            "sed -i 's/1.2.3/1x2.3/' CHANGELOG.md && git commit --quiet -am x",
            'has no entry "## [1.2.3] - <date>"',
            marks=pytest.mark.complete,
        ),
        pytest.param("git tag v1.2.3", 'the tag "v1.2.3" exists', marks=pytest.mark.complete),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_built(checkout: Path, change: str, refusal: str) -> None:
    git(checkout, "tag", "v1.2.30")
    git(checkout, "-c", f"alias.change=!{change}", "change")
    ran = release(checkout)
    assert ran.returncode != 0 and refusal in ran.stderr
    assert not (checkout / "dist").exists()


def test_a_release_has_one_version_and_the_sums_of_its_files(checkout: Path) -> None:
    (stale := checkout / "dist" / "1.2.3" / "stale.whl").parent.mkdir(parents=True)
    stale.touch()
    ran = release(checkout)
    target = checkout / "dist" / "1.2.3"
    assert ran.returncode == 0, ran.stderr
    assert sorted(file.name for file in target.iterdir()) == ["SHA256SUMS", *BUILT]
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=target, check=True, capture_output=True)
    assert len((target / "SHA256SUMS").read_text().splitlines()) == len(BUILT)
    assert json.loads((target / BUILT[1]).read_text())["components"] == components()
    committed = git(checkout, "log", "-1", "--format=%ct")
    assert (target / BUILT[2]).read_text().strip() == committed, "the time in the files is that of the commit"
    assert "no container engine answers" in ran.stdout and "git tag --annotate v1.2.3" in ran.stdout
    assert git(checkout, "status", "--porcelain") == git(checkout, "tag", "--list") == ""


@pytest.mark.complete
def test_images_are_listed_if_an_engine_answers(checkout: Path) -> None:
    assert release(checkout, engine=ENGINE).returncode == 0
    target = checkout / "dist" / "1.2.3"
    assert (target / "images.txt").read_text().splitlines() == [
        "headwater:1.2.3 sha256:headwater:1.2.3",
        "headwater:1.2.3-api sha256:headwater:1.2.3-api",
    ]
    assert "  images.txt\n" in (target / "SHA256SUMS").read_text()


@pytest.mark.complete
def test_a_build_that_fails_leaves_no_sums(checkout: Path) -> None:
    ran = release(checkout, uv=UV.replace("build) ", "build) echo no hatchling >&2; exit 2; "))
    assert ran.returncode != 0 and "no hatchling" in ran.stderr
    assert not (checkout / "dist" / "1.2.3" / "SHA256SUMS").exists()


def test_the_bill_has_every_jar_of_the_locks_once_with_its_hash_and_classpaths() -> None:
    wanted = set()
    for lock in (JAR_LOCK, SPARK_LOCK):
        for text, digest in re.findall(r'^"([^"]+)" = "([0-9a-f]{64})"$', lock.read_text(), re.MULTILINE):
            group, name, version = text.split(":")
            wanted.add((f"pkg:maven/{group}/{name}@{version}?type=jar", digest))
    jars = components()
    assert {(jar["purl"], jar["hashes"][0]["content"]) for jar in jars} == wanted
    assert len(wanted) == len(jars) > 100
    groups = {*read_lock(JAR_LOCK), *read_lock(SPARK_LOCK)}
    assert {entry["value"] for jar in jars for entry in jar["properties"]} == groups
