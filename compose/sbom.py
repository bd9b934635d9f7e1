"""The software bill of materials: every package and jar of the locks, as a CycloneDX document."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from headwater.projections.spark.setup.jars import Group, Jar

SPEC_VERSION: Final = "1.6"
_LINE: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: *; *(?P<marker>[^\\]+?))? *\\?$")
_HASH: Final = re.compile(r"--hash=(?P<algorithm>[a-z0-9]+):(?P<digest>[0-9a-f]+)")
ALGORITHMS: Final[Mapping[str, str]] = {"sha256": "SHA-256", "sha384": "SHA-384", "sha512": "SHA-512"}
"""As CycloneDX calls them, by their names in the lock."""


class NotALock(ValueError):
    """A line of the lock of Python packages cannot be read."""

    def __init__(self, number: int, line: str) -> None:
        super().__init__(f'line {number} of the lock is no package with its hashes: "{line[:100]}": run `make lock`')


@dataclass(frozen=True)
class Package:
    """A Python package of the lock. marker: where it is installed; empty: everywhere.

    hashes: (algorithm, digest in hex) of each file that may be installed.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[tuple[str, str], ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{quote(re.sub(r'[-_.]+', '-', self.name).lower())}@{quote(self.version)}"


def read_packages(lock: str) -> list[Package]:
    """The packages of a lock in the form of pip's requirements with hashes; raises NotALock."""
    found: list[Package] = []
    hashes: list[tuple[str, str]] = []
    for number, line in enumerate(lock.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if given := _HASH.match(text):
            hashes.append((ALGORITHMS[given["algorithm"]], given["digest"]))
        elif package := _LINE.match(text):
            hashes = []  # of this package; the next lines have them
            found.append(Package(package["name"], package["version"], package["marker"] or "", ()))
        else:
            raise NotALock(number, text)
        if hashes:
            last = found[-1]
            found[-1] = Package(last.name, last.version, last.marker, tuple(hashes))
    for each in found:
        if not each.hashes:
            raise NotALock(0, f"{each.name}=={each.version}")
    return found


def maven_purl(jar: Jar) -> str:
    """The package URL of a jar."""
    name = jar.coordinate
    return f"pkg:maven/{quote(name.organisation)}/{quote(name.module)}@{quote(name.version)}?type=jar"


def document(packages: Iterable[Package], groups: Iterable[Group], made_at: datetime, version: str) -> dict[str, Any]:
    """The bill as JSON. version: of Headwater."""
    jars: dict[Jar, list[str]] = {}
    for group in groups:
        for jar in group.jars:
            jars.setdefault(jar, []).append(group.name)
    python = [_of_package(each) for each in packages]
    java = [_of_jar(jar, used_by) for jar, used_by in jars.items()]
    root = f"pkg:pypi/headwater@{version}"
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": made_at.isoformat(timespec="seconds"),
            "component": {
                "type": "application", "bom-ref": root, "name": "headwater", "version": version, "purl": root,
            },
        },
        "components": sorted([*python, *java], key=lambda each: each["bom-ref"]),
    }  # fmt: skip


def _of_package(package: Package) -> dict[str, Any]:
    marker = [{"name": "headwater:marker", "value": package.marker}] if package.marker else []
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "hashes": [{"alg": algorithm, "content": digest} for algorithm, digest in package.hashes],
        **({"properties": marker} if marker else {}),
    }


def _of_jar(jar: Jar, used_by: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": maven_purl(jar),
        "group": jar.coordinate.organisation,
        "name": jar.coordinate.module,
        "version": jar.coordinate.version,
        "purl": maven_purl(jar),
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        "properties": [{"name": "headwater:classpath", "value": each} for each in used_by],
    }
