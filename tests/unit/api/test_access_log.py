"""The access log: a line per request, and none for probes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import uvicorn

from headwater.api.server.serving import NAME, is_no_probe, write_access_log
from headwater.api.settings import ACCESS_LOG, ApiSettings
from headwater.eventlog.errors import SettingError

LINE = '%s - "%s %s HTTP/%s" %d'


@pytest.mark.parametrize(
    ("path", "logged"),
    [("/health/live", False), ("/health/ready", False), ("/views/listings?q=/health/", True), ("/", True)],
)
def test_probes_are_left_out(path: str, logged: bool) -> None:
    args = ("127.0.0.1:4711", "GET", path, "1.1", 200)
    assert is_no_probe(logging.LogRecord(NAME, logging.INFO, "", 0, LINE, args, None)) is logged


def test_it_is_written_where_it_is_asked_for() -> None:
    assert not ApiSettings.from_environment({"HEADWATER_MODULES": "listings"}).server.access_log
    assert ApiSettings.from_environment({ACCESS_LOG: "true", "HEADWATER_MODULES": "listings"}).server.access_log
    with pytest.raises(SettingError, match=ACCESS_LOG):
        ApiSettings.from_environment({ACCESS_LOG: "yes please"})


@pytest.fixture
def access() -> Iterator[logging.Logger]:
    """The server's logger, put back as it was."""
    logger = logging.getLogger(NAME)
    before = logger.handlers, logger.propagate, logger.level
    yield logger
    logger.handlers, logger.propagate = before[0], before[1]
    logger.setLevel(before[2])


def test_its_lines_look_like_the_other_lines_of_the_process(
    access: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    uvicorn.Config("api:app", log_level="warning", access_log=True)
    write_access_log({})
    for path in ("/health/ready", "/views/customers?email=ada@example.com&limit=1"):
        access.info(LINE, "127.0.0.1:4711", "GET", path, "1.1", 200)
    (line,) = capsys.readouterr().err.splitlines()
    expected = r"\d{4}-\S+ \S+ INFO uvicorn\.access 127.0.0.1:4711 - .GET /views/customers HTTP/1.1. 200"
    assert re.fullmatch(expected, line), "no value of a filter, which may be personal"
