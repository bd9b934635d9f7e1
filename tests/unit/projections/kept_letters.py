"""Dead letters that a test keeps."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class KeptLetters:
    """Stands for DeadLetters. kept: the key, the reason and the part of the record of each."""

    kept: list[tuple[str, str, bytes]] = field(default_factory=list)

    def add(self, key: str, reason: str, what: bytes) -> None:
        self.kept.append((key, reason, what))
