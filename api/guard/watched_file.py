"""A file that is read again when it has changed, without a restart."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from headwater.eventlog.errors import SettingError

Content = TypeVar("Content")
CHECK_S: Final = 1.0
"""How long a change may go unnoticed."""

logger = logging.getLogger(__name__)


class WatchedFile(Generic[Content]):
    """The content of a file as it was read last. `current` is cheap: it looks at the file at most every CHECK_S."""

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Content],
        broken: Content | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read it; raises the SettingError of `read`.

        broken: the content while the file cannot be read; None: it stays as it was.
        """
        self._path, self._read, self._broken, self._clock = path, read, broken, clock
        self._seen = _stamp(path)
        self._checked_s = clock()
        self._content = read(path)

    def current(self) -> Content:
        """The content; if the file has changed and cannot be read, the log says so."""
        now_s = self._clock()
        if now_s - self._checked_s >= CHECK_S:
            self._checked_s = now_s
            stamp = _stamp(self._path)
            if stamp != self._seen:
                self._seen = stamp
                self._read_again()
        return self._content

    def _read_again(self) -> None:
        try:
            self._content = self._read(self._path)
            logger.info("read %s again, because it has changed", self._path)
        except SettingError as error:
            if self._broken is None:
                logger.error("%s; what it had before stays valid", error)
            else:
                self._content = self._broken
                logger.error("%s; until then nothing that it had is valid", error)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Differs once the file was changed or replaced; None if there is none."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - it follows links, as mounted secrets are
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
