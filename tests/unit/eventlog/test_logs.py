"""What processes log: how much, and as text or as lines of JSON."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.logs import (
    FACTS,
    JsonLines,
    LineHandler,
    WithoutValues,
    about,
    formatter_of,
    log_to_stderr,
    trace_id_of,
)

pytestmark = pytest.mark.programs

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
ALWAYS = {"time", "level", "process", "pid", "logger", "message"}


def test_a_level_or_a_format_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(SettingError, match='"HEADWATER_LOG_LEVEL" is "loud": set it to one of DEBUG, INFO'):
        log_to_stderr({"HEADWATER_LOG_LEVEL": "loud"}, "test")
    with pytest.raises(SettingError, match='"HEADWATER_LOG_FORMAT" is "yaml": set it to one of text, json'):
        log_to_stderr({"HEADWATER_LOG_FORMAT": "yaml"}, "test")


def line_of(log: Callable[[logging.Logger], None]) -> dict[str, Any]:
    """The line that a call makes."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    logger, handler = logging.Logger("headwater.commands.here"), Kept()
    handler.setFormatter(JsonLines("handler"))
    logger.addHandler(handler)
    log(logger)
    (text,) = found
    assert "\n" not in text
    assert text.isascii()
    return dict(orjson.loads(text))  # stricter than `json`


def test_a_line_has_time_level_process_logger_and_message() -> None:
    line = line_of(lambda log: log.warning("%d of %s", 3, "it"))
    assert line.keys() == ALWAYS
    assert (line["level"], line["process"], line["logger"]) == ("WARNING", "handler", "headwater.commands.here")
    assert (line["message"], line["pid"]) == ("3 of it", os.getpid())
    assert line["time"].endswith("Z")
    assert len(line["time"]) == len("2026-01-02T03:04:05.678Z")


def test_a_line_has_the_facts_of_its_context_and_of_its_call_and_no_others() -> None:
    def log(logger: logging.Logger) -> None:
        with about(role="handler", partition=3), about(stream="a/1"):
            extra = {"stream": "listing/L1", "command_id": "c1", "trace_id": None, "other": 1}
            logger.error("it failed", extra=extra)

    line = line_of(log)
    assert {name: line[name] for name in line.keys() - ALWAYS} == {
        "role": "handler",
        "partition": 3,
        "stream": "listing/L1",
        "command_id": "c1",
    }
    assert line_of(lambda log: log.info("after it")).keys() == ALWAYS


def test_the_facts_of_a_thread_are_its_own() -> None:
    lines: list[dict[str, Any]] = []
    with about(partition=1):
        thread = threading.Thread(target=lambda: lines.append(line_of(lambda log: log.info("there"))))
        thread.start()
        thread.join()
    assert "partition" not in lines[0]


def test_no_fact_is_an_attribute_that_every_record_has() -> None:
    assert not set(FACTS) & vars(logging.makeLogRecord({})).keys()


class Secret(BaseModel):
    number: int


def test_an_error_is_in_its_line_without_the_values_of_records() -> None:
    hidden = "hu" + "sh"

    def log(logger: logging.Logger) -> None:
        try:
            Secret.model_validate({"number": hidden})
        except ValueError as error:
            logger.error("not read: %s", error, exc_info=error)

    line = line_of(log)
    assert "Traceback" in line["error"]
    assert hidden not in json.dumps(line)


@pytest.mark.parametrize("worst", ["a\nb", "ü\x00\x1b[31m", "\udcff", '"}\\', "x" * 100_000])
def test_whatever_is_logged_is_one_line_of_json(worst: str) -> None:
    line = line_of(lambda log: log.warning("%s", worst, extra={"stream": worst, "path": object()}))
    readable = worst.replace("\udcff", "\\udcff")
    assert (line["message"], line["stream"]) == (readable, readable)


class WithoutText:
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


@pytest.mark.parametrize("text", ["%s", "%d of %s", ""])
def test_a_line_is_not_lost_if_what_it_is_about_has_no_text(text: str) -> None:
    message: object = text or WithoutText()
    line = line_of(lambda log: log.error(message, WithoutText(), extra={"stream": WithoutText()}))
    assert line["level"] == "ERROR"
    assert ("ZeroDivisionError" if text != "%d of %s" else "%d of %s") in line["message"]
    assert line["stream"] == "a WithoutText without a text: ZeroDivisionError"


def test_text_is_the_default() -> None:
    assert isinstance(formatter_of({}, "api"), WithoutValues)
    assert isinstance(formatter_of({"HEADWATER_LOG_FORMAT": ""}, "api"), WithoutValues)
    assert isinstance(formatter_of({"HEADWATER_LOG_FORMAT": "json"}, "api"), JsonLines)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x1c", "\x85", "\u2028"])
def test_no_text_of_a_client_begins_a_line(end: str) -> None:
    forged = f"c-1{end}2026-01-02 03:04:05,678 CRITICAL headwater \x1b[2J all is lost"
    try:
        raise ValueError(forged) from KeyError(forged)
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("a", logging.ERROR, "", 1, "command %s failed", (forged,), info)
    logging.Formatter().format(record)  # which keeps the text of the traceback in the record
    first, *others = formatter_of({}, "api").format(record).splitlines()
    assert "command c-1" in first and "all is lost" in first and "\x1b" not in first
    assert others and all(line.startswith("    ") and "\x1b" not in line for line in others)
    assert any("Traceback" in line for line in others)


def test_the_trace_of_a_context_is_found() -> None:
    assert trace_id_of(TRACEPARENT) == TRACE
    assert trace_id_of(None) is trace_id_of("") is trace_id_of("nonsense") is None
    assert trace_id_of(f"00-{'x' * 8_000}-b7ad6b7169203331-01") is None, "what a client sends is in each of its lines"


PROGRAMS = {
    "handler": ["-m", "headwater.commands"],
    "projections": ["-m", "headwater.projections"],
    "load-postgres": ["-m", "headwater.projections", "load", "postgres"],
    "live": ["-m", "headwater.projections", "live"],
    "api": ["-m", "headwater.api"],
    "sources": ["-m", "headwater.eventlog.capturing", "watch"],
}
DEMO = """
import logging, os, threading, warnings
from headwater.eventlog.programs.logs import log_to_stderr
log_to_stderr(os.environ, "demo")
warnings.warn("old", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
class Ended:
    def __del__(self):
        raise OSError("left over")
Ended()
raise KeyError("the end")
"""


def errors_of(words: list[str], tmp_path: Path) -> subprocess.Popen[str]:
    """A program that cannot start, because of its settings."""
    env = os.environ | {
        "HEADWATER_LOG_FORMAT": "json",
        "HEADWATER_MODULES": "no_such_module",
        "HEADWATER_STATE": str(tmp_path),
        "HEADWATER_METRICS_PORT": "",
    }
    return subprocess.Popen([sys.executable, *words], env=env, stderr=subprocess.PIPE, text=True)


@pytest.mark.complete
def test_every_program_logs_lines_of_json_only(tmp_path: Path) -> None:
    running = {name: errors_of(words, tmp_path) for name, words in PROGRAMS.items()}
    running["demo"] = errors_of(["-c", DEMO], tmp_path)
    lines = {}
    for name, process in running.items():
        _, said = process.communicate(timeout=240)
        assert process.returncode != 0
        lines[name] = [json.loads(line) for line in said.splitlines()]
        assert lines[name], name
        assert all(each.keys() >= ALWAYS and each["process"] == name for each in lines[name]), said
    for name in PROGRAMS:
        assert any("no_such_module" in each["message"] for each in lines[name]), name
    warned, in_thread, ignored, ended = lines["demo"]
    assert "old" in warned["message"]
    assert (in_thread["message"], ended["message"]) == ("worker ended by an error", "ended by an error")
    assert "ZeroDivisionError" in in_thread["error"]
    assert "Ended.__del__" in ignored["message"]
    assert "OSError: left over" in ignored["error"]
    assert "KeyError: 'the end'" in ended["error"]


def test_a_line_is_made_before_the_lock_is_taken_that_all_threads_share() -> None:
    """Making it runs users' code, such as the text of an exception."""
    written = io.StringIO()
    handler = LineHandler(written)
    taken: list[bool] = []

    class Slow(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            def take() -> None:
                assert handler.lock is not None
                if handler.lock.acquire(blocking=False):
                    taken.append(True)
                    handler.lock.release()

            other = threading.Thread(target=take)
            other.start()
            other.join()
            return super().format(record)

    handler.setFormatter(Slow())
    handler.handle(logging.LogRecord("a", logging.ERROR, "", 1, "said", (), None))
    assert (taken, written.getvalue()) == ([True], "said\n")
