"""`make bill`: adds the jars of the two locks to the CycloneDX document that the one argument names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import SPARK_LOCK, read_lock


def components() -> list[dict[str, Any]]:
    """The jars as CycloneDX has them, each with its hash and the classpaths that it is on."""
    schemas: dict[str, dict[str, Any]] = {}
    for group in (group for lock in (JAR_LOCK, SPARK_LOCK) for group in read_lock(lock).values()):
        for jar in group.jars:
            name = jar.coordinate
            purl = f"pkg:maven/{name.organisation}/{name.module}@{name.version}?type=jar"
            component = {
                "type": "library",
                "bom-ref": purl,
                "group": name.organisation,
                "name": name.module,
                "version": name.version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
                "properties": [],
            }
            schemas.setdefault(purl, component)["properties"].append(
                {"name": "headwater:classpath", "value": group.name}
            )
    return list(schemas.values())


if __name__ == "__main__":
    file = Path(sys.argv[1])
    bill = json.loads(file.read_text())
    bill["components"] += components()
    file.write_text(json.dumps(bill, indent=1) + "\n")
