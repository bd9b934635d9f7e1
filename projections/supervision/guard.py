"""Runs one child and stops it as soon as standard input closes, so that no child outlives its supervisor.

The supervisor holds the only write end of the pipe that is this process's standard input. It closes the pipe to stop
the child; if the supervisor is killed, the operating system closes it. Both have the same effect. It prints the child's
pid, then its exit status, on standard output. Standard library only; started by path, so it stays small.
"""

import _thread
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any


def main() -> None:
    """Run the job in the last argument: argv, log, cwd, user, stop_signal, stop_timeout_s."""
    order: dict[str, Any] = json.loads(sys.argv[-1])
    user: dict[str, Any] = {}
    if order["user"] is not None:
        user = {"user": order["user"][0], "group": order["user"][1], "extra_groups": []}
    with open(order["log"], "ab") as log:  # noqa: PTH123 (pathlib would double this process's start-up time)
        child = subprocess.Popen(
            order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=order["cwd"],
            start_new_session=True,
            **user,
        )

    def stop() -> None:
        child.send_signal(order["stop_signal"])
        try:
            child.wait(order["stop_timeout_s"])
        except subprocess.TimeoutExpired:
            child.kill()

    def stop_when_released() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        stop()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _thread.start_new_thread(stop, ()))  # see call_by_signal
    print(child.pid, flush=True)
    threading.Thread(target=stop_when_released, daemon=True).start()
    status = child.wait()
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(child.pid, signal.SIGKILL)  # processes that the child left behind
    with suppress(BrokenPipeError):  # nobody reads it any more
        print(status, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
