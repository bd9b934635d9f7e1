"""The state directory: its owner, what the owner recorded about its processes, and processes of a killed owner."""

import fcntl
import json
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from headwater.compose.errors import AlreadyRunning, ComposeError
from headwater.compose.settings import Ports
from headwater.eventlog.errors import SettingError
from headwater.projections.supervision.process import ProcessStatus, State

_LOG = logging.getLogger(__name__)
_LEFTOVERS_WAIT_S = 40.0  # longer than any part's stop timeout


@dataclass(frozen=True, slots=True)
class Record:
    """The last record of a state directory's owner: its pid, its ports, and its processes."""

    owner: int
    ports: Ports
    processes: tuple[ProcessStatus, ...]


class StateDirectory:
    """A stack's folder. Ownership is a file lock, which ends with the owner's process and so is never stale.

    To see whether there is an owner, one must try to lock the file. So whoever tries, for whatever purpose, holds a
    lock on the folder for that moment: nobody takes a look for an owner.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record_file = path / "stack.json"
        self._lock: int | None = None

    def take(self) -> None:
        """Become the owner; raises AlreadyRunning if another process is, or SettingError if the folder is unusable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._alone():
                lock = os.open(self.path / "stack.lock", os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    os.close(lock)
                    raise AlreadyRunning(self.path) from error
        except OSError as error:
            raise SettingError("HEADWATER_STATE", str(self.path), f"a folder that can be written ({error})") from error
        self._lock = lock

    def release(self) -> None:
        """Give up ownership."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_owned(self) -> bool:
        """Whether some process owns the directory now."""
        with suppress(FileNotFoundError, NotADirectoryError), self._alone():
            lock = os.open(self.path / "stack.lock", os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(lock)
        return False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let nobody else try the owner's lock meanwhile; all others wait for the few microseconds that it takes."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def write(self, ports: Ports, processes: Sequence[ProcessStatus]) -> None:
        """Record the state of the processes; readers see the old record or the new one, never half of one."""
        record = {"owner": os.getpid(), "ports": ports.model_dump(), "processes": [asdict(one) for one in processes]}
        unfinished = self._record_file.with_suffix(".new")
        unfinished.write_text(json.dumps(record, indent=2))
        unfinished.replace(self._record_file)

    def read(self) -> Record | None:
        """The last record, or None if nothing was ever started here; raises ComposeError if it cannot be read."""
        try:
            content = json.loads(self._record_file.read_text())
            processes = tuple(ProcessStatus(**one | {"state": State(one["state"])}) for one in content["processes"])
            return Record(content["owner"], Ports(**content["ports"]), processes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ComposeError(
                f"'{self._record_file}' was written by another version ({error!r}); delete it"
            ) from error

    def clear_leftovers(self) -> None:
        """Wait for the processes that a killed owner's guards still stop; end those without a guard."""
        record = self.read()
        if record is None:
            return
        guards = [guard for status in record.processes if (guard := _alive(status.guard, status.started))]
        psutil.wait_procs(guards, _LEFTOVERS_WAIT_S)
        for status in record.processes:
            left = _alive(status.pid, status.started)
            if left is not None:
                _LOG.warning("'%s' (pid %d) was left behind by a killed supervisor; ending it", status.name, left.pid)
                with suppress(ProcessLookupError):
                    os.killpg(left.pid, signal.SIGKILL)
                psutil.wait_procs([left], 10)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for a stack, removed afterwards."""
    with TemporaryDirectory(prefix="headwater-stack-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # a server's own user must pass it, if this is root
        yield Path(folder)


def _alive(pid: int | None, started: float | None) -> psutil.Process | None:
    """The process with this pid, unless it began noticeably later than recorded: then the number was reused."""
    if pid is None or started is None:
        return None
    try:
        process = psutil.Process(pid)
        return process if process.create_time() < started + 1.0 else None
    except psutil.NoSuchProcess:
        return None
