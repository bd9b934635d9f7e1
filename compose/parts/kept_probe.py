"""A probe of a server that keeps its connection: another one every two seconds costs a server more than the answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar
from weakref import finalize

Client = TypeVar("Client")


class KeptProbe(Generic[Client]):
    """Returns None if a server can serve requests, else the reason; for one thread.

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
            self._close()
            # an older connection may have ended for another reason, such as a restart
            return self() if was_connected else str(error).strip().splitlines()[-1]
        return None

    def _close(self) -> None:
        self._client = None
        self._connection.close()
