"""What `make setup` does about the Python that it finds, and about an environment that is not whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
echo "$0 $*" >> {log}
case "$*" in
    "-c "*) exit {unsupported} ;;
    "--version") echo "Python 3.14.0" ;;
    "-m venv --clear "*) mkdir -p {venv}/bin && cp {whole} {venv}/bin/python ;;
    "-m pip --version") exit {without_pip} ;;
    "-m pip install --quiet uv") printf '#!/bin/sh\\ntrue\\n' > {venv}/bin/uv && chmod +x {venv}/bin/uv ;;
esac
"""
"""Stands for every Python here: it only notes its arguments, and makes files where the next step looks for them."""


class Setup:
    """`make setup` with stand-ins, on an environment in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.venv, self.log = folder, folder / "venv", folder / "log"
        self.whole = self.python(folder / "whole")
        self.given = self.python(folder / "python3.x")

    def python(self, path: Path, unsupported: int = 0, without_pip: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        names = {"log": self.log, "venv": self.venv, "whole": self.folder / "whole"}
        path.write_text(PYTHON.format(**names, unsupported=unsupported, without_pip=without_pip))
        path.chmod(0o755)
        return path

    def run(self) -> subprocess.CompletedProcess[str]:
        # not as a part of the make that runs the tests; and only the environment may have uv
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
        path = os.pathsep.join(each for each in kept["PATH"].split(os.pathsep) if not (Path(each) / "uv").exists())
        return subprocess.run(
            ["make", "setup", f"PYTHON={self.given}", f"VENV={self.venv}"],
            cwd=ROOT,
            env={**kept, "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
        )

    @property
    def made(self) -> int:
        """How often an environment was made."""
        return self.log.read_text().count("-m venv --clear")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


@pytest.mark.programs
def test_a_whole_environment_is_kept(setup: Setup) -> None:
    setup.python(setup.venv / "bin" / "python")
    assert setup.run().returncode == 0
    assert setup.made == 0
    assert (setup.venv / ".installed").exists()


@pytest.mark.programs
def test_a_missing_environment_is_made(setup: Setup) -> None:
    assert setup.run().returncode == 0
    assert setup.made == 1


@pytest.mark.programs
@pytest.mark.parametrize("fault", [{"without_pip": 1}, {"unsupported": 1}])
def test_an_environment_without_pip_or_of_another_python_is_made_anew(setup: Setup, fault: dict[str, int]) -> None:
    setup.python(setup.venv / "bin" / "python", **fault)
    done = setup.run()
    assert (done.returncode, setup.made) == (0, 1), done.stderr


@pytest.mark.programs
def test_a_python_that_nobody_has_tried_is_refused(setup: Setup) -> None:
    setup.python(setup.given, unsupported=1)
    done = setup.run()
    assert done.returncode != 0
    assert (
        f"error: {setup.given} is Python 3.14.0, and Headwater is tested with Python 3.11, 3.12 and 3.13" in done.stderr
    )
    assert not setup.venv.exists()
