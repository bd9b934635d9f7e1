"""`python -m tests.simulation [SECONDS] [SEED]`: the long run (`make soak`)."""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.simulation.faults import NETWORK, WRITE_SIDE
from tests.simulation.run import simulate


def main(seconds: float, seed: int | None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    # so that nothing that it started outlives it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}, {seconds:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # PostgreSQL's user must pass it, if this is root
        outcome = simulate(seed, seconds, Path(folder), kinds=(*WRITE_SIDE, *NETWORK), views=True)
    print(f"{len(outcome.faults)} faults, {outcome.outcomes}, {outcome.retries} retries")
    for complaint in outcome.complaints:
        print(complaint)
    return bool(outcome.complaints)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if sys.argv[1:] else 900.0, int(sys.argv[2]) if sys.argv[2:] else None))
