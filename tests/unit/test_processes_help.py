"""A process that is asked for help, or for what it does not know, starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import headwater.api.__main__
import headwater.commands.__main__

MAINS = {"api": headwater.api.__main__.main, "handler": headwater.commands.__main__.main}


@pytest.mark.parametrize("name", MAINS)
@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["serve"], 2)])
def test_words_start_nothing(name: str, words: Sequence[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    main: Callable[[Sequence[str]], int] = MAINS[name]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert f"usage: headwater {name}" in printed.out + printed.err
