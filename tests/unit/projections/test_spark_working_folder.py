"""The folder of Spark's working files, and what becomes of it after a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headwater.projections.spark import session
from headwater.projections.spark.setup import local
from headwater.projections.spark.setup.local import working_folder

HOLDS = """
import sys
from pathlib import Path
from headwater.projections.spark.setup.local import working_folder
print(working_folder(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.mark.programs
def test_a_folder_is_kept_while_its_process_lives_and_removed_after_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        (other / "rocksdb").mkdir()
        own = working_folder(tmp_path)
        assert own is not None
        assert {own.parent, other.parent} == {tmp_path / "spark"}
        assert other.exists()
        process.kill()
        process.wait()
        again = working_folder(tmp_path)
        assert again is not None
        assert (other.exists(), own.exists(), again != own) == (False, True, True), "this process lives"


@pytest.mark.programs
def test_a_process_that_holds_one_ends_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "always", "-c", HOLDS, str(tmp_path)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_usable_folder_spark_takes_that_of_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "spark").touch()
    assert working_folder(tmp_path) is None
    assert working_folder(tmp_path / "a,b") is None


def test_a_local_session_unpacks_its_libraries_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container, nothing but the state folder may be written."""
    taken: list[SparkConf] = []
    monkeypatch.setattr(session, "spark_jars", list)
    monkeypatch.setattr(local, "archive_options", tuple)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "getOrCreate", taken.append)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: None)
    session.start_session(session.SparkSettings(), name="test", threads=1, state=tmp_path / "a b")
    (conf,) = taken
    folder = Path(str(conf.get("spark.local.dir")))
    assert folder.parent == tmp_path / "a b" / "spark"
    assert f'"-Djava.io.tmpdir={folder}"' in str(conf.get("spark.driver.extraJavaOptions"))
