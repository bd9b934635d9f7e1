"""`python -m headwater.replay`, the same as the console script `replay`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from headwater.eventlog.programs.command_line import refuse_missing
from headwater.eventlog.programs.running_deployment import use_running_deployment

FOLDING: Final = frozenset({"rebuild", "verify"})
NOT_HERE: Final = frozenset({"spark", "--engine=spark", "--dry-run", "--help"})
"""Arguments of commands that do not fold in local processes."""
COMPLETION: Final = "_COMPLETE"
"""End of the name of the variable with which a shell asks for words that complete a command."""


def main() -> None:
    """Run the command line."""
    refuse_missing("replay", "projections", "pyspark", "typer")
    use_running_deployment(os.environ)
    # an interruption simply ends this process, as long as there is nothing to undo
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    if folds_here(sys.argv[1:]):
        from headwater.projections.folding.forking import start_server  # noqa: PLC0415

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server takes this over
        start_server()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # here, because each process of a fold imports this module, and needs nothing of the command line
    from typer.main import get_command  # noqa: PLC0415

    from headwater.replay import cli  # noqa: PLC0415

    is_completed = any(name.endswith(COMPLETION) for name in os.environ)
    command = get_command(cli.app_of(None if is_completed else sys.argv[1:]))
    signal.signal(signal.SIGINT, handler)
    cli.main(command)


def folds_here(arguments: Sequence[str]) -> bool:
    """Whether a command will most likely fold in local processes; a wrong guess costs a process that nobody uses."""
    return bool(FOLDING & set(arguments[:1])) and not NOT_HERE & set(arguments)


if __name__ == "__main__":
    main()
