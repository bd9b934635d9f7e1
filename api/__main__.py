"""`headwater api`: run the HTTP API."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headwater.api.settings import CANNOT_START, ApiSettings
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.logs import complain, log_to_stderr
from headwater.eventlog.settings import accept_no_arguments


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; returns the exit code. arguments: none, or `--help`; None: those of the process."""
    accept_no_arguments("headwater api", __doc__, arguments)
    try:
        log_to_stderr(os.environ, "api")
        settings = ApiSettings.from_environment(os.environ)
        if settings.server.workers > 1:
            from headwater.api.server.workers import listen, workers  # noqa: PLC0415 - one process needs none

            return workers(settings, listen(settings)).run()
    except EventLogError as error:
        complain(f"the API cannot start: {error}")
        return CANNOT_START
    from headwater.api.server.serving import serve  # noqa: PLC0415 - the process that watches over workers needs none of it

    return serve(settings)


if __name__ == "__main__":
    sys.exit(main())
