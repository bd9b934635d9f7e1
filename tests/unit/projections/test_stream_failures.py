"""What is said of a query that failed: one line with the innermost reason, whatever it is wrapped in."""

from __future__ import annotations

import json

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException

from headwater.eventlog.errors import LogUnavailable
from headwater.projections.errors import SHOWN_CHARACTERS, StoreUnavailable, StreamQueryFailed
from headwater.projections.spark.stream_queries import output
from headwater.projections.spark.stream_queries.failures import reason
from headwater.samples.listings import views as hourly_views

PROXY = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):"
FRAMES = f'  File "{output.__file__}", line 87, in write\n    made.write.save()\n    ^^^^^^^^^^^^^^^^^'
LIBRARY = f'  File "{json.__file__}", line 346, in loads\n    return _default_decoder.decode(s)'
USERS = '  File "/shop/views.py", line 12, in share\n    return 10 // weight\n           ~~~^^~~~~~~~'
WORKER = "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:"
TRACEBACK = "Traceback (most recent call last):"
DIVIDED = "pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
PLAN = """
=== Streaming Query ===
Identifier: gates@1.g1 [id = e87a4805, runId = fcee89ed]
Current Committed Offsets: {}

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
~Project [raise_error(x) AS y]
"""
STACK = "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)\n\tat java.lang.Thread.run()"
LOST_TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 3.0 (TID 5) (localhost executor driver): "
)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        # what Python raises in a batch
        (f"{PROXY}\n{FRAMES}\nRuntimeError: first\nsecond\n{PLAN}", "RuntimeError: first"),
        (f"{PROXY}\n{FRAMES}\nKeyError\n{PLAN}", "KeyError"),
        (f"{PROXY}\n{FRAMES}\nValueError: \n\nreal text\n{PLAN}", "ValueError: real text"),
        (f"{PROXY}\n{FRAMES}\nValueError: \n{PLAN}", "ValueError"),
        (f"{PROXY}\n{FRAMES}\nprojections.errors.StreamQueryFailed: lost\n SQLSTATE: 39000", "StreamQueryFailed: lost"),
        (
            f"{PROXY}\n{FRAMES}\nKeyError: 'card'\n\nThe above exception was the direct cause of the following "
            f"exception:\n\nTraceback (most recent call last):\n{FRAMES}\nmine.Failed: row 7: KeyError: 'card'\n{PLAN}",
            "Failed: row 7: KeyError: 'card'",
        ),
        # what Python raises in a worker
        (
            f"{PROXY}\n{FRAMES}\npyspark.errors.exceptions.captured.PythonException: An exception was thrown from the "
            f"Python worker:\nTraceback (most recent call last):\n{FRAMES}\nValueError: card of\nuser\n{PLAN}",
            "ValueError: card of",
        ),
        # conditions of Spark
        (
            f"{PROXY}\n{FRAMES}\npyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by "
            f"zero. Use `try_divide`. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\n1/0\n^^^\n\n{PLAN}",
            '[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. (in "1/0")',
        ),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nselekt",
            "[PARSE_SYNTAX_ERROR] Syntax error. (line 1, pos 0)",
        ),
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: no space left SQLSTATE: XXKST",
            "no space left",
        ),
        # Java
        (
            f"An error occurred while calling o474.start.\n: java.io.IOException: Parent is a file\n{STACK}",
            "IOException: Parent is a file",
        ),
        (
            f"{PROXY}\n{FRAMES}\npy4j.protocol.Py4JJavaError: An error occurred while calling o94.save.\n: {LOST_TASK}"
            f"java.io.IOException: write failed\n{STACK}\n\nDriver stacktrace:\n{STACK}\n"
            f"Caused by: java.io.IOException: No space left on device\n{STACK}\n\t... 3 more\n{PLAN}",
            "IOException: No space left on device",
        ),
        (
            f"An error occurred while calling o9.save.\n: {LOST_TASK}java.io.IOException: write failed\n{STACK}",
            "IOException: write failed",
        ),
        (f"Writing job aborted\nCaused by: java.lang.NullPointerException\n{STACK}", "Writing job aborted"),
        (f"An error occurred while calling o9.x.\n: java.lang.NullPointerException\n{STACK}", "NullPointerException"),
        # nothing
        ("", "StreamingQueryException"),
        ("\n \n", "StreamingQueryException"),
        (PLAN, "StreamingQueryException"),
        (PROXY, "StreamingQueryException"),
        ("An error occurred while calling o9.x.", "An error occurred while calling o9.x."),
    ],
)
def test_the_reason_is_one_line_that_names_the_innermost_exception(message: str, said: str) -> None:
    assert reason(StreamingQueryException(message)) == said


@pytest.mark.parametrize(
    ("message", "place"),
    [
        # a function of Python, and one that calls another
        (f"{PROXY}\n{FRAMES}\n{USERS}\n{WORKER}\n{TRACEBACK}\n{USERS}\nKeyError: 'x'\n{PLAN}", "/shop/views.py:12"),
        (
            f"{PROXY}\n{FRAMES}\n{WORKER}\n{TRACEBACK}\n{USERS}\n{LIBRARY}\nJSONDecodeError: no value\n{PLAN}",
            "/shop/views.py:12",
        ),
        # a step, whose error has the error of the user as its cause
        (
            f"{PROXY}\n{FRAMES}\n{WORKER}\n{TRACEBACK}\n{FRAMES}\n{USERS}\nKeyError: 'x'\n\nThe above exception was "
            f"the direct cause of the following exception:\n\n{TRACEBACK}\n{LIBRARY}\n{FRAMES}\nmine.StepFailed: step\n"
            f"{PLAN}",
            "/shop/views.py:12",
        ),
        # a sample is code of a user, the engine is not
        (f"{PROXY}\n{FRAMES}\n{USERS.replace('/shop/views.py', hourly_views.__file__)}\nKeyError\n{PLAN}",
         f"{hourly_views.__file__}:12"),
        (f"{PROXY}\n{FRAMES}\n{LIBRARY}\nKeyError\n{PLAN}", ""),
        # an expression of Spark, whose line Spark knows
        (f'{PROXY}\n{FRAMES}\n{DIVIDED}\n== DataFrame ==\n"div" was called from\n/my shop/views.py:8\n\n{PLAN}',
         "/my shop/views.py:8"),
        (f'{PROXY}\n{FRAMES}\n{DIVIDED}\n== DataFrame ==\n"div" was called from\n{output.__file__}:8\n\n{PLAN}', ""),
        (
            f"{PROXY}\n{FRAMES}\n{DIVIDED}\n== SQL (line 1, position 3) ==\n1+10 div weight as x\n  ^^^^^^^^^^^^^\n\n"
            f"{PLAN}",
            'in "10 div weight"',
        ),
    ],
)  # fmt: skip
def test_the_line_of_the_user_is_named(message: str, place: str) -> None:
    said = reason(StreamingQueryException(message))
    assert said.partition(" (")[2].removesuffix(")") == place
    long = reason(StreamingQueryException(message.replace("KeyError: 'x'", f"KeyError: '{'x' * 5_000}'")))
    assert long.endswith(f"({place})" if place else said)
    assert len(long) <= SHOWN_CHARACTERS


def test_a_long_expression_leaves_room_for_what_is_wrong_with_it() -> None:
    expression = f"1 div ({' + '.join(['weight'] * 1_000)})"
    place = f"== SQL (line 1, position 1) ==\n{expression}\n{'^' * len(expression)}\n\n{PLAN}"
    said = reason(StreamingQueryException(f"{PROXY}\n{FRAMES}\n{DIVIDED}\n{place}"))
    assert said.startswith('[DIVIDE_BY_ZERO] Division by zero. (in "1 div (weight + weight')
    assert len(said) <= SHOWN_CHARACTERS


def fails() -> None:
    json.loads("[")


def test_the_line_of_a_function_of_the_user_that_is_called_here_is_named() -> None:
    with pytest.raises(ValueError, match="Expecting value") as failed:
        fails()
    said = "JSONDecodeError: Expecting value: line 1 column 2 (char 1)"
    assert reason(failed.value) == said
    assert reason(failed.value, of_user=True) == f"{said} ({__file__}:{fails.__code__.co_firstlineno + 1})"


def test_causes_that_spark_hands_over_one_by_one_are_followed() -> None:
    error, cause = (
        StreamingQueryException(f"Failed to create a client{PLAN}"),
        PySparkException("kafka.Failed: a client"),
    )
    error._cause = cause  # type: ignore[attr-defined]
    cause._cause = PySparkException("kafka.config.ConfigException: No resolvable urls in bootstrap.servers")  # type: ignore[attr-defined]
    assert reason(error) == "ConfigException: No resolvable urls in bootstrap.servers"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable("Valkey", "no route"), str(StoreUnavailable("Valkey", "no route"))),
        (StreamQueryFailed("gates", "lost"), 'the query of the stream view "gates" failed: lost'),
        (LogUnavailable("reading", "gone"), str(LogUnavailable("reading", "gone"))),
        (
            PermissionError(13, "Permission denied", "/x.lock"),
            "PermissionError: [Errno 13] Permission denied: '/x.lock'",
        ),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (ValueError("many\n\n  lines\t\x1b[1mbold\r\n"), "ValueError: many lines \x1b[1mbold"),
        (Py4JNetworkError("Answer from Java side is empty"), "Answer from Java side is empty"),
        (Py4JError(""), "Py4JError"),
    ],
)
def test_what_is_not_sparks_is_said_as_it_is(error: BaseException, said: str) -> None:
    assert reason(error) == said


@pytest.mark.parametrize("error", [ValueError("x" * 5_000_000), StreamingQueryException("[X] " + "y " * 1_000_000)])
def test_a_reason_is_never_long(error: BaseException) -> None:
    said = reason(error)
    assert len(said) == SHOWN_CHARACTERS
    assert said.endswith("…")


class Unspeakable(Exception):
    """Of a user, and cannot be shown."""

    def __str__(self) -> str:
        raise ValueError


def test_an_error_that_cannot_be_shown_is_named() -> None:
    assert reason(Unspeakable()) == "Unspeakable: ValueError"
