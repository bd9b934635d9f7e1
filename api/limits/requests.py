"""The limits of requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of requests.

    body_bytes, body_values: of a body, or of a line of NDJSON. body_s: how long a JSON body may take to arrive, and the
    next bytes of NDJSON.
    in_flight: lines of one request that are in progress at once.
    in_flight_in_all: commands of all such requests that wait for their receipts; more would only wait in the log.
    in_flight_bytes: of their records; a larger one waits until it is alone.
    stall_s: how long a client may read nothing of an answer.
    idle_s: how long it may take to send the head of a request, after it connected or had the answer to the one before.
    heartbeat_s: time between comments to a follower.
    followers: clients that follow changes at once.
    """

    body_bytes: int = 512 * 1024
    body_values: int = 20_000
    body_s: float = 60.0
    answer_timeout_s: float = 10.0
    wait_ms: int = 5_000
    max_wait_ms: int = 30_000
    in_flight: int = 1_000
    in_flight_in_all: int = 4_000
    in_flight_bytes: int = 64 * 1024 * 1024
    stall_s: float = 60.0
    idle_s: float = 10.0
    heartbeat_s: float = 15.0
    followers: int = 1_000
