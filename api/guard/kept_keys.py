"""The keys of an issuer on disk, for an API that starts while the issuer does not answer."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import orjson

MAX_KEPT_S: Final = 24 * 60 * 60.0
"""After this time without an answer of the issuer, its keys on disk are not used: one may have been withdrawn."""
MAX_BYTES: Final = 2 * 1024 * 1024

logger = logging.getLogger(__name__)


class KeptKeys:
    """The last JWKS document of one issuer, in a file that only this user can read and write."""

    def __init__(self, folder: Path, issuer: str, jwks: str, clock: Callable[[], float] = time.time) -> None:
        """issuer, jwks: see `open_keys`; others have other files. clock: seconds since 1970."""
        self._names = {"issuer": issuer, "jwks": jwks}
        digest = hashlib.sha256(orjson.dumps(self._names)).hexdigest()[:16]
        self.path, self._clock = folder / f"{digest}.json", clock

    def write(self, document: Any) -> None:
        """Keep a document that was just fetched, in place of the last one. What prevents it is a warning."""
        content = orjson.dumps({**self._names, "fetched_s": self._clock(), "document": document})
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # several processes may write; a temporary file is for its owner only
            with NamedTemporaryFile(dir=self.path.parent, prefix=f"{self.path.stem}.", delete=False) as part:
                try:
                    part.write(content)
                    part.flush()
                    os.fsync(part.fileno())
                    Path(part.name).replace(self.path)
                except BaseException:
                    Path(part.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            logger.warning("cannot keep the keys of the issuer for the next start in %s: %s", self.path, error.strerror)

    def read(self) -> tuple[Any, float] | None:
        """The document, and how many seconds ago it was fetched; None if there is none that may be trusted."""
        try:
            text = self._text()
            found = None if text is None else orjson.loads(text)
        except (OSError, orjson.JSONDecodeError) as error:
            logger.warning("cannot read the keys of the issuer in %s: %s", self.path, error)
            return None
        if not isinstance(found, dict) or {name: found.get(name) for name in self._names} != self._names:
            return None
        fetched_s = found.get("fetched_s")
        if not isinstance(fetched_s, int | float):
            return None
        age_s = self._clock() - fetched_s
        if not -MAX_KEPT_S <= age_s <= MAX_KEPT_S:
            logger.warning("the keys of the issuer in %s are too old: %.0f hours", self.path, age_s / 3600)
            return None
        return found.get("document"), max(0.0, age_s)

    def _text(self) -> bytes | None:
        """The file, if it is this user's alone: whoever could write it could make tokens that are accepted."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(file, "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                logger.warning(
                    "the keys of the issuer in %s are not used, because others may have written them: delete the file",
                    self.path,
                )
                return None
            return opened.read(MAX_BYTES)
