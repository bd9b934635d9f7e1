"""The proof: unit, contracts, integration, acceptance, bench."""

import os
from pathlib import Path

# An installed library may have a package `tests`, too: processes that tests start find this one first.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.getenv("PYTHONPATH"))))
