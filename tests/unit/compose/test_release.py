"""`make release`: what it refuses, and what it leaves of one version."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.compose.publishing import release

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- Something.\n"
UV = """#!/bin/sh
while [ "$1" != --out-dir ]; do shift; done
echo "$SOURCE_DATE_EPOCH" > "$2/headwater-1.2.3.tar.gz"
echo wheel > "$2/headwater-1.2.3-py3-none-any.whl"
echo '*' > "$2/.gitignore"
"""
ENGINE = """#!/bin/sh
case "$1" in info) ;; image) echo "sha256:$5" ;; *) exit 1 ;; esac
"""
MADE = ["headwater-1.2.3-py3-none-any.whl", "headwater-1.2.3.cdx.json", "headwater-1.2.3.tar.gz"]


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
    (folder / ".gitignore").write_text("dist/\n")
    (folder / "Makefile").write_text("images:\n\t@test $(ENGINE)\n")
    shutil.copy(ROOT / "requirements.lock", folder)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All of it")
    return folder


def test_a_committed_tree_whose_version_is_described_and_not_tagged_can_be_released(checkout: Path) -> None:
    assert release.refusals(checkout, release.version_of(checkout)) == []


def test_changes_that_are_not_committed_are_refused(checkout: Path) -> None:
    (checkout / "new.py").touch()
    (checkout / "CHANGELOG.md").write_text(CHANGELOG + "more\n")
    (refusal,) = release.refusals(checkout, "1.2.3")
    assert "(CHANGELOG.md, new.py): commit or remove them" in refusal


@pytest.mark.parametrize("heading", ["[1.2.3]", "[Unreleased]", "[11.2.3] - 2026-01-31", "[1x2.3] - 2026-01-31"])
def test_a_version_without_a_dated_entry_in_the_changelog_is_refused(checkout: Path, heading: str) -> None:
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "Another entry")
    (refusal,) = release.refusals(checkout, "1.2.3")
    assert 'has no entry "## [1.2.3] - <date>"' in refusal


def test_a_version_that_is_tagged_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.30")
    assert release.refusals(checkout, "1.2.3") == []
    git(checkout, "tag", "v1.2.3")
    (refusal,) = release.refusals(checkout, "1.2.3")
    assert refusal == 'the tag "v1.2.3" exists: raise the version in pyproject.toml'


def test_what_is_refused_builds_nothing_and_names_every_reason(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(checkout, "tag", "v1.2.3")
    (checkout / "new.py").touch()
    monkeypatch.chdir(checkout)
    assert release.main(["--uv", "/no/uv"]) == 1
    error = capsys.readouterr().err
    assert "not committed" in error and "exists" in error
    assert not (checkout / "dist").exists()


def test_a_folder_that_is_no_checkout_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    assert release.main([]) == 1
    assert "not a git repository" in capsys.readouterr().err


def released(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Path, int]:
    monkeypatch.chdir(checkout)
    code = release.main(["--uv", program(tmp_path / "uv", UV), *words])
    return checkout / "dist" / "1.2.3", code


def test_a_release_has_one_version_and_the_sums_of_its_files(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (stale := checkout / "dist" / "1.2.3" / "stale.whl").parent.mkdir(parents=True)
    stale.touch()
    target, code = released(checkout, tmp_path, monkeypatch)
    assert (code, sorted(each.name for each in target.iterdir())) == (0, ["SHA256SUMS", *MADE])
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=target, check=True, capture_output=True)
    assert len((target / "SHA256SUMS").read_text().splitlines()) == len(MADE)
    bill = json.loads((target / MADE[1]).read_text())
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    assert len(bill["components"]) > 100
    committed = git(checkout, "log", "-1", "--format=%ct")
    assert (target / MADE[2]).read_text().strip() == committed, "the time in the files is that of the commit"
    printed = capsys.readouterr().out
    assert "no container engine answers" in printed and "git tag --annotate v1.2.3" in printed
    assert release.refusals(checkout, "1.2.3") == [], "it leaves nothing in the tree, and no tag"


def test_the_images_are_among_what_has_sums_if_an_engine_answers(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, code = released(checkout, tmp_path, monkeypatch, "--engine", program(tmp_path / "podman", ENGINE))
    assert code == 0
    assert (target / "images.txt").read_text().splitlines() == [
        "headwater:1.2.3 sha256:headwater:1.2.3",
        "headwater:1.2.3-api sha256:headwater:1.2.3-api",
    ]
    assert "  images.txt\n" in (target / "SHA256SUMS").read_text()


def test_a_build_that_fails_leaves_no_sums(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    assert release.main(["--uv", program(tmp_path / "uv", "#!/bin/sh\necho no hatchling >&2\nexit 2\n")]) == 1
    assert "ended with 2: no hatchling" in capsys.readouterr().err
    assert not (checkout / "dist" / "1.2.3" / "SHA256SUMS").exists()


def test_a_program_that_is_missing_is_named(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout)
    assert release.main(["--uv", ".venv/bin/uv"]) == 1
    assert "there is no program .venv/bin/uv: put uv on the path" in capsys.readouterr().err
