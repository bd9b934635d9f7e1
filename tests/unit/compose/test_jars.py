"""The jar lock and its cache, without the network: Ivy is replaced by a function that writes files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.compose.stack import JAR_LOCK
from headwater.projections.spark.setup import jars
from headwater.projections.spark.setup.jars import (
    SPARK_LOCK,
    Coordinate,
    Group,
    Jar,
    JarError,
    cache_directory,
    group_jars,
    lock_group,
    read_lock,
    write_lock,
)

CONTENT = {Coordinate("org.a", "one_2.13", "1.0"): b"first", Coordinate("org.b", "two", "2.1.Final"): b"second"}


@pytest.fixture
def ivy_downloads(monkeypatch: pytest.MonkeyPatch) -> list[list[Coordinate]]:
    """Stands in for Ivy; returns what was asked for, call by call."""
    asked: list[list[Coordinate]] = []

    def retrieve(
        wanted: Sequence[Coordinate], scratch: Path, *, transitive: bool, label: str
    ) -> dict[Coordinate, Path]:
        asked.append(list(wanted))
        scratch.mkdir(parents=True)
        served = CONTENT if transitive else {coordinate: CONTENT[coordinate] for coordinate in wanted}
        found = {coordinate: scratch / coordinate.file_name for coordinate in served}
        for coordinate, file in found.items():
            file.write_bytes(CONTENT[coordinate])
        return found

    monkeypatch.setattr(jars, "retrieve", retrieve)
    return asked


def locked() -> Group:
    entries = tuple(Jar(name, hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items())
    return Group("pair", tuple(CONTENT), False, entries)


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    group = locked()
    write_lock(tmp_path / "jars.lock", [group], "two\n\nlines")
    assert read_lock(tmp_path / "jars.lock") == {"pair": group}


@pytest.mark.parametrize("path", [SPARK_LOCK, JAR_LOCK])
def test_a_lock_in_the_repository_covers_all_it_wants(path: Path) -> None:
    for group in read_lock(path).values():
        assert set(group.wants) <= {jar.coordinate for jar in group.jars}


def test_jars_are_downloaded_once_and_verified(tmp_path: Path, ivy_downloads: list[list[Coordinate]]) -> None:
    paths = group_jars(locked(), tmp_path)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert [path.name for path in paths] == ["one_2.13-1.0.jar", "two-2.1.Final.jar"]
    assert group_jars(locked(), tmp_path) == paths
    assert ivy_downloads == [list(CONTENT)]


def test_only_missing_jars_are_downloaded(tmp_path: Path, ivy_downloads: list[list[Coordinate]]) -> None:
    first, second = group_jars(locked(), tmp_path)
    second.unlink()
    assert group_jars(locked(), tmp_path) == [first, second]
    assert ivy_downloads[1:] == [[Coordinate("org.b", "two", "2.1.Final")]]


def test_a_jar_with_another_checksum_is_never_installed(tmp_path: Path, ivy_downloads: list[list[Coordinate]]) -> None:
    group = locked()
    forged = Jar(group.jars[1].coordinate, "0" * 64)
    with pytest.raises(JarError, match=r"org\.b:two:2\.1\.Final.*the lock says 000"):
        group_jars(Group("pair", group.wants, False, (forged,)), tmp_path)
    assert not list((tmp_path / "jars").rglob("*.jar"))


def test_locking_records_what_was_resolved(tmp_path: Path, ivy_downloads: list[list[Coordinate]]) -> None:
    wanted = Group("pair", (Coordinate("org.a", "one_2.13", "1.0"),), True, ())
    assert lock_group(wanted, tmp_path).jars == locked().jars


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[a", "not a valid jar lock"),
        ("[a]\nwants = []", "group 'a'"),
        ('[a]\nwants = []\ntransitive = true\n[a.jars]\n"x:y:1" = "beef"', "'x:y:1' in group 'a'"),
        ('[a]\nwants = ["x:y"]\ntransitive = true\n[a.jars]', "'x:y' is not a coordinate"),
    ],
)
def test_a_malformed_lock_is_refused_by_entry(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "jars.lock"
    path.write_text(text)
    with pytest.raises(JarError, match=named):
        read_lock(path)


def test_the_cache_is_outside_the_checkout_and_can_be_chosen(tmp_path: Path) -> None:
    assert not cache_directory({}).is_relative_to(Path.cwd())
    assert cache_directory({"HEADWATER_CACHE": str(tmp_path)}) == tmp_path


def test_a_download_that_fails_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_MAVEN", (tmp_path / "nothing-here").as_uri())
    with pytest.raises(JarError, match=r"needs the network once.*HEADWATER_MAVEN.*HEADWATER_CACHE"):
        jars.retrieve([Coordinate("org.a", "absent", "1")], tmp_path, transitive=False, label="downloading")
