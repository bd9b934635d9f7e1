"""How much is logged, and a level that is none."""

from __future__ import annotations

import pytest

from eventlog.errors import SettingError
from eventlog.logs import log_to_stderr


def test_a_level_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(SettingError, match='"HEADWATER_LOG_LEVEL" is "loud": set it to one of DEBUG, INFO'):
        log_to_stderr({"HEADWATER_LOG_LEVEL": "loud"})
