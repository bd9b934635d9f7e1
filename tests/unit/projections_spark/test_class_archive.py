"""The archive of Spark's classes: sessions take their classes from it, and one that is of no use does no harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from headwater.projections.spark.prepare import make_archive
from headwater.projections.spark.session import SparkSettings
from headwater.projections.spark.setup import local
from headwater.projections.spark.setup.java import locate_java

pytestmark = pytest.mark.jvm

SESSION = """
import sys
from pathlib import Path
from headwater.projections.spark.setup import local
from headwater.projections.spark.session import SparkSettings, end, start_session

local.CLASSES = Path(sys.argv[1])
session = start_session(SparkSettings(java=(f"-Xlog:class+load:file={sys.argv[2]}",)), name="test", threads=1)
print(session.version)
end(session, 120)
"""


@pytest.fixture(scope="module")
def archive() -> Path:
    if not (locate_java().resolve().parent.parent / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own classes, on which ours would build")
    # not in this process: making it ends the session that other tests have here
    subprocess.run([sys.executable, "-m", "headwater.projections", "prepare"], check=True, timeout=600)
    made = local.find_archive(local.CLASSES, local.spark_stem(), "jsa")
    assert made is not None
    return made


def loaded(folder: Path, log: Path) -> list[str]:
    """What the JVM of a session with the archive in `folder` says of each class that it loaded."""
    command = [sys.executable, "-c", SESSION, str(folder), str(log)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout.split()) == (0, [pyspark.__version__]), ran.stderr
    return log.read_text().splitlines()


@pytest.mark.complete
def test_a_session_takes_sparks_classes_from_the_archive(archive: Path, tmp_path: Path) -> None:
    lines = [line for line in loaded(archive.parent, tmp_path / "classes") if " org.apache.spark." in line]
    classes = [line for line in lines if "$$Lambda$" not in line]  # Scala's closures cannot be archived
    shared = sum(line.endswith("source: shared objects file (top)") for line in classes)
    assert len(classes) > 1_000
    assert shared > 0.9 * len(classes)


@pytest.mark.complete
def test_a_session_starts_all_the_same_with_an_archive_that_is_damaged(archive: Path, tmp_path: Path) -> None:
    content = archive.read_bytes()
    half = len(content) // 2
    (tmp_path / archive.name).write_bytes(content[:half] + b"x" * 1000 + content[half + 1000 :])
    lines = loaded(tmp_path, tmp_path / "classes")
    assert not any(line.endswith("(top)") for line in lines)


@pytest.mark.complete
def test_an_archive_that_was_cut_off_is_not_used(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / archive.name).write_bytes(archive.read_bytes()[:1_000_000])  # it would end the JVM
    monkeypatch.setattr(local, "CLASSES", tmp_path)
    assert local.archive_options() == ()


def test_it_is_made_once(archive: Path) -> None:
    made = archive.stat().st_mtime_ns
    assert make_archive() == archive
    assert archive.stat().st_mtime_ns == made


def test_an_installation_that_cannot_be_written_to_goes_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(local, "CLASSES", tmp_path / "file" / "classes")
    assert make_archive() is None
    assert "starts slower" in caplog.text
    assert "SharedArchiveFile" not in SparkSettings().options(2)["spark.driver.extraJavaOptions"]


def test_executors_elsewhere_have_another_class_path(archive: Path) -> None:
    assert str(archive) in SparkSettings().options(2)["spark.driver.extraJavaOptions"]
    assert (
        str(archive) not in SparkSettings(master="spark://elsewhere:7077").options(2)["spark.driver.extraJavaOptions"]
    )
