"""`headwater run` on servers that run already: started in the folder of a project, by the Python of its environment."""

from __future__ import annotations

import sys

from headwater.__main__ import main
from headwater.compose import run
from headwater.compose.stack import Stack


class RunningAlready(Stack):
    """Starts and stops nothing."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


if __name__ == "__main__":
    run.Stack = RunningAlready  # type: ignore[attr-defined]
    sys.argv[:] = ["headwater", "run", *sys.argv[1:]]
    sys.exit(main())
