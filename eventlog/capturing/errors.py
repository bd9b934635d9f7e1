"""The errors of captured databases.

CaptureError
├── SourceDeclarationError   a source or a table is declared wrongly
├── UnknownSource            the deployment has no source with this name
├── UnreadableChange         a record cannot be read as a change of its table
├── SourceProblem            the database cannot be captured as it is
└── ConnectError             Kafka Connect refused a request, or did not answer
    ├── ConnectUnavailable   it did not answer
    └── ConnectorFailed      a connector that was to run has failed
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.eventlog.declaring import WrongDeclaration
from headwater.eventlog.errors import EventLogError


class CaptureError(EventLogError):
    """Root of the errors of captured databases; the message says what to do."""


class SourceDeclarationError(CaptureError, WrongDeclaration):
    """A source or a table is declared wrongly."""


class UnknownSource(CaptureError):
    """The deployment has no source with this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        has = f"it has {', '.join(known)}" if known else "it has none: name a module with a Source in HEADWATER_MODULES"
        super().__init__(f'the deployment has no source "{name}": {has}')
        self.name, self.known = name, tuple(known)


class UnreadableChange(CaptureError):
    """A record cannot be read as a change of its table; `table` and `reason` say which and why."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f'a change of table "{table}" cannot be read: {reason}')
        self.table, self.reason = table, reason


class SourceProblem(CaptureError):
    """The database cannot be captured as it is; each problem is a sentence with the SQL or the setting that helps."""

    def __init__(self, source: str, *problems: str) -> None:
        super().__init__("\n".join(f'source "{source}": {problem}' for problem in problems))
        self.source, self.problems = source, problems


class ConnectError(CaptureError):
    """Kafka Connect refused a request, or did not answer."""


class ConnectUnavailable(ConnectError):
    """Kafka Connect did not answer."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(
            f'Kafka Connect does not answer at "{url}" ({cause}): start it, or set HEADWATER_CONNECT to its address'
        )
        self.url = url


class ConnectorFailed(ConnectError):
    """A connector that was to run has failed; cause: as Connect says it."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(f'the connector of source "{source}" failed: {cause}')
        self.cause = cause
