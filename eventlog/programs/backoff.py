"""How often processes that keep dying are restarted."""

from dataclasses import dataclass

MAX_DOUBLINGS = 32
"""The largest exponent of a wait, which has reached its maximum by then; 2.0**1024 would be an error."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How a process that keeps dying is restarted: doubling waits, and a limit.

    After `limit` restarts in a row, with the process living for less than `stable_s` each time, it is given up; before
    it has ever been healthy, after `limit_at_first` restarts, because then the likely cause is its configuration. None:
    never.
    """

    first_s: float = 0.2
    max_s: float = 5.0
    limit: int | None = 8
    limit_at_first: int | None = 2
    stable_s: float = 30.0

    def wait_s(self, attempt: int) -> float:
        """The wait before restart number `attempt`, counted from 0."""
        return min(self.max_s, self.first_s * 2.0 ** min(attempt, MAX_DOUBLINGS))


DEFAULT_BACKOFF = Backoff()

RETRY_FOREVER = Backoff(first_s=0.5, max_s=10.0, limit=None, limit_at_first=None)
"""For processes that wait for servers: never given up, not even at the first start."""
