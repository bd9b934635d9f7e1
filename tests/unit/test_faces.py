"""The two import lines of whoever declares a domain: they give every word, and bring no Spark, client or server."""

from __future__ import annotations

import subprocess
import sys

import pytest

import commands
import projections

HEAVY = (
    "pyspark",
    "confluent_kafka",
    "fastapi",
    "uvicorn",
    "psycopg",
    "elasticsearch",
    "valkey",
    "rocksdict",
    "pyarrow",
)


@pytest.mark.parametrize("package", [commands, projections])
def test_every_word_is_there_and_others_are_not(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no_such_word"):
        package.no_such_word  # type: ignore[attr-defined]  # noqa: B018


def test_declaring_a_domain_imports_no_spark_no_client_and_no_server() -> None:
    script = (
        "from commands import *\nfrom projections import *\nimport sys\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert ran.stdout.strip() == "[]"


def test_who_needs_another_part_waits_for_no_word() -> None:
    script = "import commands.errors, projections.errors, sys\nprint('pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert ran.stdout.strip() == "False"
