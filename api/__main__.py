"""`python -m api`: the HTTP service, made from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from api.settings import CANNOT_START, ApiSettings
from eventlog.errors import EventLogError
from eventlog.logs import log_to_stderr
from eventlog.settings import take_no_words


def main(words: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code. words: there are none but `--help`."""
    take_no_words("python -m api", __doc__, words)
    try:
        log_to_stderr(os.environ)
        settings = ApiSettings.from_environment(os.environ)
        if settings.workers > 1:
            from api.workers import Workers, listen  # noqa: PLC0415 - one process needs none

            return Workers(settings, listen(settings)).run()
    except EventLogError as error:
        print(f"the API cannot start: {error}", file=sys.stderr)
        return CANNOT_START
    from api.serving import serve  # noqa: PLC0415 - the process that watches over workers needs none of it

    return serve(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
