"""Which URLs may be trusted with the keys of an issuer."""

from __future__ import annotations

from urllib.parse import urlsplit

from headwater.api.hosts import is_loopback


def url_problem(url: str) -> str | None:
    """Why a URL must not be trusted with keys; None if it may."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if not host or parts.username is not None or parts.fragment:
        return "it is not a URL with a host, and without a user"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return None
    return "its keys could be exchanged on the way without https://"
