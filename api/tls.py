"""The certificate of the API, which is read again when its files change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.eventlog.errors import SettingError

CERTIFICATE: Final = "HEADWATER_API_CERTIFICATE"
PRIVATE_KEY: Final = "HEADWATER_API_PRIVATE_KEY"
CHECK_S: Final = 10
"""How long a new certificate may go unnoticed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with those of its issuers, and its private key, without a password."""

    certificate: Path
    private_key: Path

    @classmethod
    def of(cls, certificate: str, private_key: str) -> TlsFiles | None:
        """The files with these paths, None if both are empty; raises SettingError if they cannot be used."""
        if not certificate and not private_key:
            return None
        for variable, value, other in (
            (CERTIFICATE, certificate, PRIVATE_KEY),
            (PRIVATE_KEY, private_key, CERTIFICATE),
        ):
            if not value:
                raise SettingError(variable, "", f"a PEM file, because {other} is set: both are needed together")
        files = cls(Path(certificate), Path(private_key))
        files.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return files

    def load(self, context: ssl.SSLContext) -> None:
        """Let new connections use what the files have now; raises SettingError."""
        for variable, path in ((CERTIFICATE, self.certificate), (PRIVATE_KEY, self.private_key)):
            try:
                path.read_bytes()
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise SettingError(variable, str(path), f"a PEM file that can be read ({reason})") from error
        try:
            # the password: else a key with one would ask for it at the terminal
            context.load_cert_chain(self.certificate, self.private_key, password=_no_password)
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", None) or str(error)
            needs = (
                f"PEM files of a certificate and, in {PRIVATE_KEY}, of its private key without a password ({reason})"
            )
            raise SettingError(CERTIFICATE, str(self.certificate), needs) from None

    def stamps(self) -> tuple[object, ...]:
        """Differ once a file was changed or replaced."""
        stamps: list[object] = []
        for path in (self.certificate, self.private_key):
            try:
                state = path.stat()
                stamps.append((state.st_ino, state.st_mtime_ns, state.st_size))
            except OSError:
                stamps.append(None)
        return tuple(stamps)


class Certificate:
    """The certificate of a server that runs. If new files cannot be used, the one before stays in use."""

    def __init__(self, files: TlsFiles, context: ssl.SSLContext) -> None:
        self._files, self._context, self._seen = files, context, files.stamps()

    def refresh(self) -> None:
        """Use the files again if they have changed."""
        stamps = self._files.stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            # in a context of its own first: a failure halfway would leave a certificate without its key
            self._files.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._files.load(self._context)
            logger.info("new connections use the changed certificate in %s", self._files.certificate)
        except SettingError as error:
            logger.error("%s; the certificate before stays in use", error)


def _no_password() -> str:
    raise ValueError("the private key has a password")
