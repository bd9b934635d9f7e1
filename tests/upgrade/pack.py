"""`python -m tests.upgrade.pack NAME [COMMIT]`: keeps the code of a commit as a release to try later ones with."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[2]
RELEASES: Final = Path(__file__).parent / "releases"


def pack(name: str, commit: str = "HEAD") -> Path:
    """Write releases/NAME.tar.xz: the packages of a commit as its wheel has them, without their bill."""
    packed = RELEASES / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        files = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=BytesIO(files)) as archive:
            archive.extractall(checkout, filter="data")
        words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(checkout)]
        subprocess.run(words, check=True)
        (wheel,) = Path(folder).glob("headwater-*.whl")
        with ZipFile(wheel) as built, tarfile.open(packed, "w:xz") as archive:
            for file in sorted(each for each in built.namelist() if ".dist-info/" not in each):
                content = built.read(file)
                member = tarfile.TarInfo(file)  # of no user and no time: the same code is the same archive
                member.size = len(content)
                archive.addfile(member, BytesIO(content))
    return packed


if __name__ == "__main__":
    print(pack(*sys.argv[1:]))
