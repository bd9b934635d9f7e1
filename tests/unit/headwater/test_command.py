"""The command `headwater`: it lists its commands, hands each its arguments, and imports only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from headwater.__main__ import PARTS, main

pytestmark = pytest.mark.programs

HELP_OF_EACH = """
import json, sys
from contextlib import redirect_stdout
from io import StringIO
from headwater.__main__ import PARTS, main

found = {}
for name in PARTS:
    sys.argv[:] = ["headwater", name, "--help"]
    with redirect_stdout(StringIO()) as shown:
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    found[name] = code or 0, shown.getvalue()
print(json.dumps(found))
"""
SCRIPT = "import sys\nfrom headwater.__main__ import main\nsys.exit(main())\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """What an installation makes of the entry point."""
    path = tmp_path / "headwater"
    path.write_text(SCRIPT)
    return path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=False)


def test_help_has_a_line_for_each_command(script: Path) -> None:
    ended = run(str(script), "--help")
    assert ended.returncode == 0
    for name, part in PARTS.items():
        assert f"{name} " in ended.stdout and part.help in ended.stdout


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[int, str]]:
    """By command, the exit code and the output of its `--help`: of one process, since each would import much again."""
    ended = run("-c", HELP_OF_EACH)
    assert ended.returncode == 0, ended.stderr
    return {name: (code, shown) for name, (code, shown) in json.loads(ended.stdout).items()}


@pytest.mark.parametrize("name", PARTS)
def test_each_command_is_that_of_its_part_under_its_name(helps: dict[str, tuple[int, str]], name: str) -> None:
    code, shown = helps[name]
    assert code == 0
    assert f"usage: headwater {name}" in shown.lower()


@pytest.mark.parametrize(
    ("word", "code", "out", "err"),
    [
        ("--version", 0, f"headwater {version('headwater')}\n", ""),
        ("rnu", 2, "", 'error: there is no command "rnu": did you mean "run"?\n'),
    ],
)
def test_its_version_and_what_is_not_a_command(
    word: str, code: int, out: str, err: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headwater", word])
    assert main() == code
    assert capsys.readouterr() == (out, err)


def test_help_imports_neither_spark_nor_a_store() -> None:
    """One command after another: what the last one has not imported, none has."""
    code = (
        "import sys\nfrom headwater.__main__ import main\n"
        "for words in ['--help'], ['new', '--help'], ['api', '--help']:\n"
        "    sys.argv[1:] = words\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "print([name for name in ('pyspark', 'psycopg', 'elasticsearch', 'pandas') if name in sys.modules])"
    )
    ended = run("-c", code)
    assert ended.returncode == 0, ended.stderr
    assert "usage: headwater api" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"
