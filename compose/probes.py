"""Whether a server can serve requests, and if not, why."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar
from weakref import finalize

Client = TypeVar("Client")


class KeptProbe(Generic[Client]):
    """Returns None if a server can serve requests, else the reason; for one thread.

    It keeps its connection: another one every two seconds costs a server more than the answer.

    connect: a context with a client. ask: asks the server by it. errors: what both raise if it cannot serve.
    The connection is closed with the probe.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Client]],
        ask: Callable[[Client], object],
        errors: tuple[type[Exception], ...],
    ) -> None:
        self._connect, self._ask, self._errors = connect, ask, errors
        self._connection = ExitStack()
        finalize(self, self._connection.close)
        self._client: Client | None = None

    def __call__(self) -> str | None:
        was_connected = self._client is not None
        try:
            if self._client is None:
                self._client = self._connection.enter_context(self._connect())
            self._ask(self._client)
        except self._errors as error:
            self._client = None
            self._connection.close()
            # an older connection may have ended for another reason, such as a restart
            return self() if was_connected else str(error).strip().splitlines()[-1]
        return None


def http_problem(connection: http.client.HTTPConnection, path: str) -> str | None:
    """None if a server answers 200, else the reason. Closes the connection."""
    try:
        connection.request("GET", path, headers={"host": "localhost"})  # every API answers to this name
        answer = connection.getresponse()
        text = answer.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {connection.host}:{connection.port}: {error}"
    finally:
        connection.close()
    return None if answer.status == http.client.OK else f"{path} answers {answer.status}: {text[:500]}"
