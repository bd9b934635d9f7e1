"""`make release`: the wheel, the sdist, the bill of materials and the images of one version, from one commit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headwater.compose.audit import PACKAGE_LOCK, locked_groups
from headwater.compose.sbom import NotALock, document, read_packages
from headwater.projections.spark.setup.jars import JarError

TARGETS: Final = Path("dist")
BUILD_LOCK: Final = Path("compose") / "containers" / "build.lock"
"""What builds the wheel, with hashes."""
SUMS: Final = "SHA256SUMS"
IMAGES: Final = "images.txt"


class NotReleased(Exception):
    """Why there is no release, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the release of the checkout in the current folder; returns the exit code."""
    parser = ArgumentParser("make release", description=__doc__)
    parser.add_argument("--uv", default="uv", help="the program uv, which builds")
    parser.add_argument("--engine", default="", help="docker or podman, for images; empty: no images")
    given = parser.parse_args(arguments)
    folder = Path.cwd()
    try:
        version = version_of(folder)
        if faults := refusals(folder, version):
            raise NotReleased("; ".join(faults))
        target = folder / TARGETS / version
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        build(folder, target, given.uv)
        write_bill(folder, target, version)
        built = write_images(folder, target, version, given.engine)
        write_sums(target)
    except (NotReleased, NotALock, JarError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{TARGETS / version}: {', '.join(sorted(each.name for each in target.iterdir()))}")
    if not built:
        print("no container engine answers, so there are no images: `make images` builds them elsewhere")
    print(f"if all is well: git tag --annotate {tag_of(version)} --message 'Headwater {version}'")
    return 0


def version_of(folder: Path) -> str:
    """The version in pyproject.toml, from which everything else takes it."""
    version: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    return version


def tag_of(version: str) -> str:
    """The tag of git that names a version."""
    return f"v{version}"


def refusals(folder: Path, version: str) -> list[str]:
    """Why this checkout cannot be released as `version`, with what to do; empty if it can."""
    found = []
    if changed := _git(folder, "status", "--porcelain").splitlines():
        names = ", ".join(line[3:] for line in changed[:3]) + (" and others" if len(changed) > 3 else "")
        found.append(f"the tree has changes that are not committed ({names}): commit or remove them")
    entry = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$", re.MULTILINE)
    if not entry.search((folder / "CHANGELOG.md").read_text()):
        found.append(
            f'CHANGELOG.md has no entry "## [{version}] - <date>": write it, or change the version in pyproject.toml'
        )
    if _git(folder, "tag", "--list", tag_of(version)):
        found.append(f'the tag "{tag_of(version)}" exists: raise the version in pyproject.toml')
    return found


def build(folder: Path, target: Path, uv: str) -> None:
    """Build the sdist, and the wheel from it: who builds from the sdist gets the same."""
    words = ["build", "--quiet", "--build-constraints", str(BUILD_LOCK), "--require-hashes", "--out-dir", str(target)]
    _run(folder, [uv, *words], {"SOURCE_DATE_EPOCH": str(int(_committed_at(folder).timestamp()))})
    (target / ".gitignore").unlink(missing_ok=True)  # uv writes one


def write_bill(folder: Path, target: Path, version: str) -> None:
    """Write the bill of materials: every package and jar of the locks; raises NotALock or JarError."""
    packages = read_packages((folder / PACKAGE_LOCK).read_text())
    bill = document(packages, locked_groups(), _committed_at(folder), version)
    (target / f"headwater-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def write_images(folder: Path, target: Path, version: str, engine: str) -> bool:
    """Build the images and write their tags with their ids; returns whether a container engine answers."""
    if not engine or subprocess.run([engine, "info"], capture_output=True, check=False).returncode != 0:
        return False
    _run(folder, ["make", "images", f"ENGINE={engine}"], {})
    tags = (f"headwater:{version}", f"headwater:{version}-api")
    ids = (_run(folder, [engine, "image", "inspect", "--format", "{{.Id}}", tag], {}).strip() for tag in tags)
    (target / IMAGES).write_text("".join(f"{tag} {each}\n" for tag, each in zip(tags, ids, strict=True)))
    return True


def write_sums(target: Path) -> None:
    """Write a line per file, which `sha256sum --check` reads."""
    files = sorted(target.iterdir())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (target / SUMS).write_text("".join(lines))


def _committed_at(folder: Path) -> datetime:
    return datetime.fromtimestamp(int(_git(folder, "log", "-1", "--format=%ct")), UTC)


def _git(folder: Path, *words: str) -> str:
    return _run(folder, ["git", *words], {}).strip("\n")


def _run(folder: Path, words: Sequence[str], variables: dict[str, str]) -> str:
    """What a program prints; raises NotReleased with its error."""
    try:
        ran = subprocess.run(
            words, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise NotReleased(f"there is no program {words[0]}: put {Path(words[0]).name} on the path") from error
    if ran.returncode != 0:
        raise NotReleased(
            f"`{' '.join(map(str, words))}` ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()}"
        )
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
