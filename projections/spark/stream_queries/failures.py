"""Why a query failed, in one line that names what a user can change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headwater.eventlog.errors import EventLogError
from headwater.eventlog.places import innermost, is_users, raised_at
from headwater.projections.errors import SHOWN_CHARACTERS, ProjectionError

_PLAN: Final = "\n=== Streaming Query ==="
"""Before what Spark appends to the message of a query: its ids, offsets and plan."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_CAUSE: Final = re.compile(r"(?:Caused by)?: ")
"""Before an exception of Java."""
_SAYS_NOTHING: Final = re.compile(r"[\w.$]+:?$|(?:[\w.$]+: )?An error occurred while calling ")
"""Only a class, or py4j's sentence before the exception."""
_REFUSALS: Final = (
    "CANNOT_LOAD_STATE_STORE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "MALFORMED_LOG_FILE",
    "Incomplete log file",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED",
    # what another Spark, or another release of Headwater, has made
    "UnsupportedLogVersion",
    "produced by a newer version of Spark",
    "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
)
"""What Spark says of a checkpoint that it cannot read, or cannot continue."""
_AROUND: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: ",
        r"^.*?Job aborted due to stage failure: .*? most recent failure: Lost task .*? executor [^)]*\): ",
        r"^(?:[\w$]+\.)+(?=[\w$]+(?:: |$))",  # a package
        r"^[\w$]+: (?=\[[A-Z])",  # a class, if a condition of Spark follows
        r" SQLSTATE: \w{5}\b",
    )
)
"""What Spark and Java say around a message."""
_FRAMES: Final = re.compile(r'^ +File "(.+)", line (\d+), in ', re.MULTILINE)
"""Of tracebacks of Python."""
_CALLED: Final = re.compile(r"== DataFrame ==\n.+ was called from\n(.+):(\d+)$", re.MULTILINE)
_IN_SQL: Final = re.compile(r"== SQL \(line \d+, position \d+\) ==\n(.+)\n( *\^+)$", re.MULTILINE)
"""Where an expression is that failed, by Spark."""


def reason(error: BaseException, *, of_user: bool = False) -> str:
    """Why something failed, in one line of at most SHOWN_CHARACTERS, and in which line of the user's code if that is
    known. It never raises.

    Of an error of Spark, that is the innermost exception which says something: what Python raised, or Java's.
    of_user: a function of the user raised it, so that the place is in its own traceback.
    """
    place = raised_at(error) if of_user else ""
    if isinstance(error, PySparkException | Py4JError):
        texts = "\nCaused by: ".join(_text(cause) for cause in _chain(error))
        text, place = _innermost(texts), place or _place(texts)
    elif isinstance(error, ProjectionError | EventLogError):
        text = _text(error)
    else:
        text = f"{type(error).__name__}: {_text(error)}"
    line = " ".join(text.split()).removesuffix(":") or type(error).__name__
    place = f" ({_shown(place, SHOWN_CHARACTERS // 2)})" if place else ""
    return _shown(line, SHOWN_CHARACTERS - len(place)) + place


def refuses_state(error: BaseException) -> bool:
    """Whether Spark says that it cannot read the checkpoint of a query. It never raises."""
    return any(refusal in text for refusal in _REFUSALS for text in map(_text, _chain(error)))


def _shown(text: str, characters: int) -> str:
    """As much of a text as has room."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _place(text: str) -> str:
    """Where the user's code failed, by messages and stacks of Spark and Python; empty if that is not known."""
    if called := [frame for frame in _CALLED.findall(text) if is_users(frame[0])]:
        return ":".join(called[-1])
    if marked := _IN_SQL.findall(text):
        line, marks = marked[-1]
        return f'in "{line[marks.index("^") : len(marks)]}"'
    return innermost(_FRAMES.findall(text))


def _text(error: BaseException) -> str:
    try:
        return str(error).partition(_PLAN)[0]
    except Exception as problem:  # noqa: BLE001 - py4j asks the JVM for it, which may have ended
        return type(problem).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those of Java that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "_cause", None)


def _innermost(text: str) -> str:
    """The line of the innermost exception in the messages and stacks of Java and Python."""
    lines = [line for line in text.splitlines() if line.strip()]
    telling, others, in_traceback = list[str](), list[str](), False
    for number, line in enumerate(lines):
        cause = _CAUSE.match(line)
        if line.endswith(_TRACEBACK):
            in_traceback = True
        elif in_traceback and not line[0].isspace():
            in_traceback = False
            follows = lines[number + 1] if line.rstrip().endswith(":") and number + 1 < len(lines) else ""
            telling.append(f"{line} {follows}")
        elif cause or number == 0:
            shown = line[cause.end() :] if cause else line
            (others if _SAYS_NOTHING.match(shown) else telling).append(shown)
    text_found = [*others, *telling][-1] if others or telling else ""
    for around in _AROUND:
        text_found = around.sub("", text_found)
    return text_found
