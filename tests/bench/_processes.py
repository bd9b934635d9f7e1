"""What the processes of a deployment have spent, and what Kafka was asked, read from outside."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from headwater.compose.parts import installation
from headwater.compose.stack import fetch_jars

GUARD: Final = "guard.py"
"""Each part of the stack and of the read side runs below one, whose next argument is the part's name."""
COMPILING: Final = "compiling"
COMPILERS: Final = ("C1 Compiler", "C2 Compiler")
"""How the names of Java's threads that compile begin: what a young process spends, and an old one does not."""
COUNT: Final = re.compile(r"request=(\w+)[^=]*(?:,version=\d+)?[^=]*:Count=(\d+)")


def spent_s(roots: Mapping[str, int]) -> Counter[str]:
    """Seconds of processor time, user and system, by part. roots: the process at the top of each tree.

    It includes what processes that have ended had spent, which the kernel adds to the one that waited for them. What
    Java's compilers spend is a part of its own, COMPILING, whoever they work for.
    """
    found = Counter[str]()
    for part, process in _parts(roots):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            compiling: Any = _compiling_s(process.pid)  # typeshed knows counters of integers only
            found[COMPILING] += compiling
            found[part] += times.user + times.system + times.children_user + times.children_system - compiling
    return found


def memory_mb(roots: Mapping[str, int]) -> dict[str, int]:
    """What is resident by part, in megabytes, without what its processes share with others."""
    found = Counter[str]()
    for part, process in _parts(roots):
        with suppress(psutil.NoSuchProcess):
            found[part] += process.memory_full_info().uss
    return {part: round(size / 1e6) for part, size in found.most_common()}


def _parts(roots: Mapping[str, int]) -> Iterator[tuple[str, psutil.Process]]:
    """Every process with the part that it belongs to."""
    below = [(name, psutil.Process(pid)) for name, pid in roots.items()]
    while below:
        part, process = below.pop()
        with suppress(psutil.NoSuchProcess):  # it has ended
            part = _part(process.cmdline()) or part
            below += [(part, child) for child in process.children()]
            yield part, process


def _compiling_s(pid: int) -> float:
    """What the compilers of a process have spent, if it is Java's."""
    spent = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            if (task / "comm").read_text().startswith(COMPILERS):
                after_name = (task / "stat").read_text().rpartition(")")[2].split()
                spent += (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def _part(words: Sequence[str]) -> str | None:
    return next((words[at + 1] for at, word in enumerate(words[:-1]) if word.endswith(GUARD)), None)


def pid_of(part: str, root: int) -> int:
    """The process that a part's guard has started."""
    for guard in psutil.Process(root).children(recursive=True):
        if _part(guard.cmdline()) == part:
            return int(guard.children()[0].pid)
    raise LookupError(f'no "{part}" runs below process {root}')


class KafkaRequests:
    """How many requests of each kind a broker has handled, from its JMX."""

    def __init__(self, pid: int) -> None:
        """pid: the broker, which shows its metrics from now on, to this machine alone."""
        _jcmd(pid, "ManagementAgent.start_local")
        url = re.search(r"URL\s*: (\S+)", _jcmd(pid, "ManagementAgent.status"))
        if url is None:
            raise LookupError(f"process {pid} does not show its metrics")
        self._url = url[1]
        self._classes = ":".join(map(str, fetch_jars(("kafka",))["kafka"]))

    def counts(self) -> Counter[str]:
        """By the name of the API, in all versions of it; `FetchConsumer` is left out, which counts fetches again."""
        metric = "kafka.network:type=RequestMetrics,name=RequestsPerSec,*"
        words = [
            str(installation.java()),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            self._classes,
            "org.apache.kafka.tools.JmxTool",
        ]
        words += ["--jmx-url", self._url, "--object-name", metric, "--attributes", "Count", "--one-time"]
        words += ["--report-format", "properties"]
        shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
        found = Counter[str]()
        for name, count in COUNT.findall(shown):
            found[name] += int(count)
        del found["FetchConsumer"]
        return found


def _jcmd(pid: int, *words: str) -> str:
    tool = str(Path(installation.java()).with_name("jcmd"))
    return subprocess.run([tool, str(pid), *words], check=True, capture_output=True, text=True, timeout=60).stdout
