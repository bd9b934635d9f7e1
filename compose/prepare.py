"""Makes the archives of the servers' classes: each server starts once, and its JVM records what it loads."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.compose.parts import class_archive
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import CAPTURING, fetch_jars, specs_of
from headwater.compose.testing.shared import own_folder
from headwater.projections.spark.setup import archive_files
from headwater.projections.supervision.process import ProcessSpec, SupervisionError
from headwater.projections.supervision.supervised import Supervisor

log = logging.getLogger(__name__)

ON_A_JVM: Final = ("kafka", "elasticsearch", "connect")
DUMP_S: Final = 900.0
"""It takes some seconds, and longer on a machine that has other work."""


def make_archives() -> list[Path]:
    """Make the missing archives, in about a quarter of a minute; returns those that are there.

    Fewer, with a warning, if this installation is not writable, or if a server's Java cannot make one.
    """
    jars = fetch_jars(CAPTURING)
    if any(class_archive.found(name, jars[name]) is None for name in ON_A_JVM):
        log.info("making archives of the servers' classes, which halve their start time")
        try:
            archive_files.clear(class_archive.FOLDER)
        except OSError as error:
            log.warning("cannot make archives of the servers' classes, so they start slower: %s", error)
            return []
        try:
            _record(jars)
        except SupervisionError as error:  # who needs the server will see it again
            log.warning("%s", error)
    found = {name: class_archive.found(name, jars[name]) for name in ON_A_JVM}
    if missing := [name for name, archive in found.items() if archive is None]:
        log.warning("these servers have no archive of their classes, so they start slower: %s", ", ".join(missing))
    return list(filter(None, found.values()))


def _record(jars: Mapping[str, Sequence[Path]]) -> None:
    made = {name: class_archive.FOLDER / f"{name}.{os.getpid()}.part" for name in ON_A_JVM}
    with own_folder() as folder:
        specs = specs_of(StackSettings(folder, free_ports()), ("kafka", "postgres", "elasticsearch", "connect"))
        supervisor = Supervisor([_recording(each, made.get(each.name)) for each in specs])
        supervisor.start()
        supervisor.stop()
    for name, archive in made.items():
        if archive.exists():
            class_archive.keep(name, jars[name], archive)


def _recording(spec: ProcessSpec, into: Path | None) -> ProcessSpec:
    if into is None:
        return spec
    return replace(spec, env={**spec.env, **class_archive.record(into)}, stop_timeout_s=DUMP_S)
