"""What Headwater's processes log, as text for people or as a line of JSON per event for programs."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, TextIO

from headwater.eventlog.errors import SettingError
from headwater.eventlog.hidden_values import without_values

LOG_LEVEL: Final = "HEADWATER_LOG_LEVEL"
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMAT: Final = "HEADWATER_LOG_FORMAT"
TEXT, JSON = "text", "json"
FORMATS: Final = (TEXT, JSON)
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
FACTS: Final = (
    "role", "partition", "offset", "stream", "command_id", "command_type", "instance", "trace_id", "error_id", "method",
    "path", "status",
)  # fmt: skip
"""What a line of JSON may have in addition to its message: from `about`, or from `extra` of the call that logs."""
CHATTY: Final = ("elastic_transport", "httpx", "py4j")
"""Libraries with a log line per request or thread."""

_CONTROLS: Final = {
    code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029) if code != ord("\t")
}
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_about: ContextVar[Mapping[str, object]] = ContextVar("about")
_running: list[Callable[[], Mapping[str, object]]] = []
_process: list[str] = []
"""Which program this process is, once it logs."""


class WithoutValues(logging.Formatter):
    """Formats a log line, with its traceback, without the values that pydantic's errors quote.

    A message is one line, and a traceback is indented, so that no text of a client begins a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message, record.asctime = _message(record), self.formatTime(record, self.datefmt)
        lines = [_escaped(without_values(self.formatMessage(record)))]
        if record.exc_info and record.exc_info[0] is not None:
            lines += _indented(without_values(self.formatException(record.exc_info)))
        if record.stack_info:
            lines += _indented(record.stack_info)
        return "\n".join(lines)


class LineHandler(logging.StreamHandler[TextIO]):
    """Makes each line before it takes the lock that all threads share: under it, it only writes."""

    def handle(self, record: logging.LogRecord) -> Any:
        if not (passes := self.filter(record)):
            return passes
        try:
            line = self.format(record)
            with self.lock or nullcontext():
                self.stream.write(line + self.terminator)
                self.flush()
        except Exception:  # noqa: BLE001 - as `emit` does: no line of a log ends a program
            self.handleError(record)
        return passes


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: its time, level, process, logger, message, facts and error.

    It is ASCII, whatever the record has: standard error may have any encoding.
    """

    def __init__(self, process: str) -> None:
        """process: which program this is."""
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "process": self._process,
            "pid": record.process,
            "logger": record.name,
            "message": _readable(without_values(_message(record))),
        }
        given = _about.get({})
        for facts_of in _running:
            given = {**given, **facts_of()}
        facts = {name: getattr(record, name, given.get(name)) for name in FACTS}
        line |= {
            name: fact if isinstance(fact, int) else _text(fact) for name, fact in facts.items() if fact is not None
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = _readable(without_values(self.formatException(record.exc_info)))
        return json.dumps(line)


def _message(record: logging.LogRecord) -> str:
    """The message of a record, also if its values do not fit into it, or have no text: it is not lost then."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever code of users raises, the line says what it can
        return f"{_text(record.msg)} (its values have no text: {type(error).__name__})"


def _escaped(text: str) -> str:
    """A text without characters that begin a line or control a terminal."""
    return text.translate(_CONTROLS)


def _indented(text: str) -> list[str]:
    return [f"    {_escaped(line)}" for line in text.splitlines()]


def _text(value: object) -> str:
    """The text of a value, which may be of a user's class."""
    try:
        return _readable(str(value))
    except Exception as error:  # noqa: BLE001 - likewise
        return f"a {type(value).__name__} without a text: {type(error).__name__}"


def _readable(text: str) -> str:
    """A text without half characters, as a key has that is not UTF-8: readers of JSON may refuse the line for them."""
    return text.encode(errors="backslashreplace").decode()


@contextmanager
def about(**facts: object) -> Iterator[None]:
    """A context whose log lines have these facts, some of FACTS; they are those of this thread or task."""
    token = _about.set({**_about.get({}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


def take_facts_from(facts_of: Callable[[], Mapping[str, object]]) -> None:
    """Ask this, too, for facts when a line is written: in its thread, and only if lines are JSON."""
    if facts_of not in _running:
        _running.append(facts_of)


def trace_id_of(traceparent: str | None) -> str | None:
    """The id of the trace in a W3C trace context; None if there is none."""
    parts = (traceparent or "").split("-", 4)
    return parts[1] if len(parts) >= 4 and _TRACE_ID.fullmatch(parts[1]) else None


def format_of(env: Mapping[str, str]) -> str:
    """One of FORMATS, as `HEADWATER_LOG_FORMAT` says; `text` if it is none of them."""
    log_format = env.get(LOG_FORMAT) or TEXT
    return log_format if log_format in FORMATS else TEXT


def formatter_of(env: Mapping[str, str], process: str) -> logging.Formatter:
    """Formats the lines of this process as `HEADWATER_LOG_FORMAT` says. process: which program this is."""
    return JsonLines(process) if format_of(env) == JSON else WithoutValues(FORMAT)


def log_to_stderr(env: Mapping[str, str], process: str, default: str = "INFO") -> None:
    """Log from level `HEADWATER_LOG_LEVEL` on, in the format `HEADWATER_LOG_FORMAT`.

    process: which program this is. Raises SettingError if the level or the format is not one that there is.
    """
    _process[:] = [process]
    level = env.get(LOG_LEVEL) or default
    handler = LineHandler()
    handler.setFormatter(formatter_of(env, process))
    logging.basicConfig(level=level if level in LEVELS else default, handlers=[handler])
    for library in CHATTY:
        logging.getLogger(library).setLevel(logging.WARNING)
    if format_of(env) == JSON:
        _log_everything()
    if level not in LEVELS:
        raise SettingError(LOG_LEVEL, level, f"one of {', '.join(LEVELS)}")
    if (env.get(LOG_FORMAT) or TEXT) not in FORMATS:
        raise SettingError(LOG_FORMAT, env[LOG_FORMAT], f"one of {', '.join(FORMATS)}")


def process_name() -> str:
    """Which program this process is; `python` before it logs."""
    return _process[0] if _process else "python"


def complain(reason: str) -> None:
    """Say why a program cannot start: alone on standard error, or as a line of its log if that is JSON."""
    if format_of(os.environ) == JSON:
        logging.getLogger("headwater").critical("%s", reason)
    else:
        print(reason, file=sys.stderr)


def _log_everything() -> None:
    """Log warnings and uncaught errors, which Python would print."""
    logging.captureWarnings(True)
    logger = logging.getLogger("headwater")

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            logger.critical("ended by an error", exc_info=(kind, error, trace))

    def uncaught_in_thread(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and not issubclass(failed.exc_type, SystemExit):
            name = failed.thread.name if failed.thread else "a thread"
            logger.error("%s ended by an error", name, exc_info=failed.exc_value)

    def unraisable(failed: sys.UnraisableHookArgs) -> None:
        logger.error("%s: %r", failed.err_msg or "exception ignored in", failed.object, exc_info=failed.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, uncaught_in_thread, unraisable
