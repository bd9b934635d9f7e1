"""Which names the API answers to: a website must not reach it under a name of its own (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

ANY: Final = "*"
LOCALHOST: Final = "localhost"


@dataclass(frozen=True)
class Hosts:
    """The hosts that a request may name.

    names: in lower case and without a port; `*.example.com` is every name below `example.com`, `*` is any host.
    addresses: whether it may be any IP address; else only one of this machine. A website cannot have an address as its
    name.
    """

    names: frozenset[str]
    addresses: bool

    @classmethod
    def of(cls, bound: str, allowed: Sequence[str]) -> Hosts:
        """Those of an API that listens on `bound`; allowed: by the setting.

        Names of this machine always belong to them. Without the setting, an API that only this machine can reach takes
        only these names, and another one any name.
        """
        loopback = is_loopback(bound.lower())
        if not (allowed or loopback):
            return ANY_HOST
        names = (each.lower() for each in (*allowed, bound))
        return cls(frozenset(str(_address(each) or each) for each in names), addresses=not loopback)

    @property
    def is_any(self) -> bool:
        """Whether it may be any host."""
        return ANY in self.names

    def has(self, name: str) -> bool:
        """Whether a request may name this host; name: in lower case, without a port."""
        if self.is_any or name in self.names or is_loopback(name):
            return True
        if (address := _address(name)) is not None:
            return self.addresses or str(address) in self.names
        parts = name.split(".")
        return any(".".join(("*", *parts[start:])) in self.names for start in range(1, len(parts)))


ANY_HOST: Final = Hosts(frozenset({ANY}), addresses=True)


def is_loopback(name: str) -> bool:
    """Whether a host, in lower case, is this machine, and only this machine reaches it."""
    address = _address(name)
    return name == LOCALHOST if address is None else address.is_loopback


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
