"""What the benches of handler processes share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.eventlog.settings import LogSettings


@contextmanager
def handler(settings: LogSettings, state: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A handler process with its state in `state`, which writes its log lines to the file `log`."""
    environment = os.environ | {
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_STATE": str(state),
    }
    with log.open("ab") as output:
        process = subprocess.Popen([sys.executable, "-m", "headwater.commands"], env=environment, stderr=output)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def peak_mb(pid: int) -> int:
    """The most memory that a process has had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise ValueError("the kernel does not tell")
