"""`make audit`: a bill of what this checkout is made of, and the holes in it that a public database knows."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx

from headwater.compose.sbom import SPEC_VERSION, NotALock, document, maven_purl, read_packages
from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup.jars import SPARK_LOCK, Group, Jar, JarError, read_lock

FINE_EXIT: Final = 0
HOLES_EXIT: Final = 1
NOT_ASKED_EXIT: Final = 3
PACKAGE_LOCK: Final = Path("requirements.lock")
BILL: Final = Path("build/sbom.cdx.json")
DATABASE: Final = "https://api.osv.dev"
"""Of known holes (osv.dev), which pip-audit asks, too."""
PIP_AUDIT: Final = ("tool", "run", "pip-audit", "--disable-pip", "--require-hashes", "--vulnerability-service", "osv",
                    "--format", "json", "--progress-spinner", "off", "--requirement")  # fmt: skip
ANSWER_S: Final = 30.0
PIP_AUDIT_S: Final = 600.0
AT_ONCE: Final = 500
"""Jars in one question; the database takes 1,000."""


@dataclass(frozen=True)
class Findings:
    """What was asked about, and the answer. holes: a line each. not_asked: why not everything was asked; else empty."""

    what: str
    holes: Sequence[str] = ()
    not_asked: str = field(default="")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill and print the holes; returns the exit code. Run it in the folder of the checkout."""
    parser = ArgumentParser("make audit", description=__doc__)
    parser.add_argument("--uv", default="uv", help="the program uv, which runs pip-audit")
    parser.add_argument("--database", default=DATABASE, help="another address with the interface of osv.dev, for jars")
    given = parser.parse_args(arguments)
    try:
        groups = locked_groups()
        packages = read_packages(PACKAGE_LOCK.read_text())
    except (NotALock, JarError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return HOLES_EXIT
    bill = document(packages, groups, datetime.now(UTC), version("headwater"))
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(json.dumps(bill, indent=1) + "\n")
    jars = list(dict.fromkeys(jar for group in groups for jar in group.jars))
    print(f"{BILL}: {len(packages)} Python packages and {len(jars)} jars (CycloneDX {SPEC_VERSION})")
    return report([of_packages(given.uv, PACKAGE_LOCK), of_jars(given.database, jars)])


def locked_groups() -> list[Group]:
    """The jars of the local stack, and those of Spark; raises JarError."""
    return [*read_lock(JAR_LOCK).values(), *read_lock(SPARK_LOCK).values()]


def report(found: Sequence[Findings]) -> int:
    """Print the answers; returns the exit code."""
    for each in found:
        for hole in each.holes:
            print(f"{each.what}: {hole}")
        if each.not_asked:
            print(f"{each.what}: NOT CHECKED for known holes: {each.not_asked}")
        elif not each.holes:
            print(f"{each.what}: no known holes")
    if any(each.holes for each in found):
        return HOLES_EXIT
    return NOT_ASKED_EXIT if any(each.not_asked for each in found) else FINE_EXIT


def of_packages(uv: str, lock: Path, run: Callable[..., Any] = subprocess.run) -> Findings:
    """Ask pip-audit. It also ends with success if it could ask about nothing, so its answer is read."""
    what = "Python packages"
    try:
        ended = run([uv, *PIP_AUDIT, str(lock)], capture_output=True, text=True, timeout=PIP_AUDIT_S, check=False)
        audited = json.loads(ended.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return Findings(what, not_asked=f"pip-audit cannot run: {error}")
    except (ValueError, KeyError, TypeError):
        last = (ended.stderr or "").strip().splitlines()[-1:] or ["it printed nothing"]
        return Findings(what, not_asked=f"pip-audit gave no answer: {last[0][:300]}")
    skipped = [each["name"] for each in audited if "skip_reason" in each]
    holes = [
        f"{each['name']} {each['version']}: {hole['id']}{_fixed_in(hole)}"
        for each in audited
        for hole in each.get("vulns", ())
    ]
    if not skipped and audited:
        return Findings(what, holes)
    named = ", ".join(skipped[:3]) + (" and others" if len(skipped) > 3 else "") or "none was asked about"
    return Findings(what, holes, f"the database does not know {len(skipped)} of {len(audited)}: {named}")


def _fixed_in(hole: Mapping[str, Any]) -> str:
    versions = hole.get("fix_versions")
    return f", fixed in {', '.join(versions)}" if versions else ""


def of_jars(database: str, jars: Sequence[Jar]) -> Findings:
    """Ask the database about the jars, by their package URLs."""
    what = "jars"
    try:
        with httpx.Client(base_url=database, timeout=ANSWER_S) as client:
            answers = [each for part in _parts(jars) for each in _asked(client, part)]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return Findings(what, not_asked=f"{database} gave no answer: {str(error) or type(error).__name__}")
    holes = [
        f"{jar.coordinate}: {', '.join(hole['id'] for hole in answer['vulns'])}"
        for jar, answer in zip(jars, answers, strict=True)
        if answer.get("vulns")
    ]
    cut = [str(jar.coordinate) for jar, answer in zip(jars, answers, strict=True) if answer.get("next_page_token")]
    return Findings(what, holes, f"the database has more to say about {', '.join(cut)}" if cut else "")


def _asked(client: httpx.Client, jars: Sequence[Jar]) -> list[dict[str, Any]]:
    """The database's answer about each of these."""
    queries = [{"package": {"purl": maven_purl(jar).partition("?")[0]}} for jar in jars]
    answer = client.post("/v1/querybatch", json={"queries": queries}).raise_for_status()
    results: list[dict[str, Any]] = answer.json()["results"]
    if len(results) != len(jars):
        raise ValueError(f"{len(results)} answers to {len(jars)} questions")
    return results


def _parts(jars: Sequence[Jar]) -> Iterator[Sequence[Jar]]:
    for start in range(0, len(jars), AT_ONCE):
        yield jars[start : start + AT_ONCE]


if __name__ == "__main__":
    sys.exit(main())
