"""`python -m api`: the HTTP service, made from the environment."""

from __future__ import annotations

import logging
import os
import sys

import uvicorn

from api.app import create_app
from api.composition import compose_service
from api.settings import ApiSettings
from commands.errors import CommandError
from eventlog.errors import EventLogError
from projections.errors import ProjectionError


def main() -> int:
    """Serve until stopped; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("elastic_transport").setLevel(logging.WARNING)  # it has a line for every request
    try:
        settings = ApiSettings.from_environment(os.environ)
        app = create_app(compose_service(settings))
    except (EventLogError, CommandError, ProjectionError) as error:
        print(f"the API cannot start: {error}", file=sys.stderr)
        return 2
    uvicorn.run(app, host=settings.host, port=settings.port, access_log=False, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
