"""`python -m tests.simulation [SECONDS] [SEED]`: the long run (`make soak`)."""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.simulation.run import simulate


def main(length: str = "900", number: str = "") -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    # so that nothing that it started outlives it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    seconds, seed = float(length), int(number or random.SystemRandom().randrange(2**32))
    print(f"seed {seed}, {seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcome = simulate(seed, seconds, Path(folder), views=True)
    print(f"{len(outcome.faults)} faults, {outcome.outcomes}, {outcome.retries} retries")
    for complaint in outcome.complaints:
        print(complaint)
    return bool(outcome.complaints)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
