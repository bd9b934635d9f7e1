"""`headwater handler`: decide commands and run processes until SIGTERM or SIGINT, in HEADWATER_HANDLERS processes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError
from headwater.commands.service import END_S, handle, work
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.programs.stopping import Stopping
from headwater.eventlog.programs.variables import Processes, Variables
from headwater.eventlog.programs.workers import Workers
from headwater.eventlog.settings import LogSettings, accept_no_arguments

KILL_S: Final = END_S + 2.0
"""How long handlers may take to end before they are killed: they end themselves before."""

logger = logging.getLogger("headwater.commands")


class HandlerVariables(Variables):
    """The variables of this process beside those of the log."""

    handlers: Processes = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the handlers of the environment's deployment; returns the exit code.

    arguments: none, or `--help`; None: those of the process.
    """
    accept_no_arguments("headwater handler", __doc__, arguments)
    try:
        log_to_stderr(os.environ, "handler")
        settings = LogSettings.from_environment(os.environ)
        handlers = HandlerVariables.read(os.environ).handlers
        settings.make_state()
        if handlers > 1:
            # each handler loads them too; here, an error is logged once
            CommandRegistry.load(settings.modules)
            ProcessRegistry.load(settings.modules)
            return Workers("handler", handlers, work, (settings,), end_s=KILL_S).run()
    except (EventLogError, CommandError) as error:
        logger.error("%s", error)
        return 1
    return handle(settings, Stopping())


if __name__ == "__main__":
    sys.exit(main())
