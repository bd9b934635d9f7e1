"""What `replay --help` lists is what the verbs say of themselves, though it imports none of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer

from headwater.replay import cli


def _verbs(words: list[str]) -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app_of(words))
    return dict(group.commands)


@pytest.mark.parametrize("name", cli.VERBS)
def test_the_list_of_verbs_says_what_each_says_of_itself(name: str) -> None:
    listed = _verbs(["--help"])
    named = _verbs([name])[name]
    assert listed[name].help == " ".join(named.help.partition("\n\n")[0].split())


def test_a_help_imports_no_store_and_no_client_of_kafka() -> None:
    shown = (
        "import sys; from headwater.replay import cli; cli.app_of(['--help'])(['--help'], standalone_mode=False); "
        "print(sorted({'psycopg', 'confluent_kafka', 'elasticsearch', 'pyspark'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=100)
    assert "rebuild" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
