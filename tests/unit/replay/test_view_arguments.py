"""Which views a verb is about, what it asks before it deletes, and what it tells when it fails at some of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import RebuildFailed
from headwater.projections.generations.registry.state_files import StreamReport, read_report, write_report
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from tests.unit.replay.played import Stage, generation

CHANGING = (("rebuild",), ("rollback",), ("verify",), ("publish",), ("prune",), ("drop",))
SHOWN = 'environment "headwater" at 127.0.0.1:19092, modules listings'
"""What is shown before anything is dropped."""
READING = (("status",), ("list",), ("generations",), ("plan",))


@pytest.fixture
def built(stage: Stage) -> Stage:
    stage.registry.generations = [
        generation("listings", 1, "retired"),
        generation("listings", 2, "live"),
        generation("streams", 1, "building"),
        generation("then", 3, "live", source="listings"),
    ]
    return stage


def numbers(stage: Stage) -> list[tuple[str, int]]:
    return [(each.view, each.generation) for each in stage.registry.all()]


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits at the terminal: CliRunner's input is what they type."""
    import typer.testing

    monkeypatch.setattr(typer.testing._NamedTextIOWrapper, "isatty", lambda _: True)
    assert not sys.stdin.isatty()


@pytest.mark.parametrize("verb", CHANGING)
@pytest.mark.parametrize("words", [(), ("listings", "--all")])
def test_a_verb_that_changes_something_is_told_which_views(
    built: Stage, verb: tuple[str, ...], words: tuple[str, ...]
) -> None:
    before = numbers(built)
    done = built.run(*verb, *words)
    assert (done.code, done.out) == (2, "")
    assert "or --all" in done.err
    assert numbers(built) == before


@pytest.mark.parametrize("verb", READING)
def test_a_verb_that_only_reads_shows_all_views_where_none_is_named(built: Stage, verb: tuple[str, ...]) -> None:
    every = built.run(*verb, "--all")
    assert built.run(*verb).out == every.out != ""
    assert built.run(*verb, "listings", "--all").code == 2


def test_prune_without_a_terminal_refuses_and_says_what_to_do(built: Stage) -> None:
    before = numbers(built)
    done = built.run("prune", "--all")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        SHOWN,
        "2 to drop:",
        "  generation 1 of listings (version 1, retired)",
        "  generation 1 of streams (version 1, building)",
        "replay: nothing was dropped: without a terminal, use --yes, or --dry-run to see what would be dropped",
    ]
    assert numbers(built) == before


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_prune_that_is_not_agreed_to_drops_nothing(built: Stage, answer: str) -> None:
    before = numbers(built)
    done = built.run("prune", "listings", answer=answer)
    assert (done.code, done.out) == (1, "")
    assert "generation 1 of listings (version 1, retired)\nDrop them? [y/N] " in done.err
    assert numbers(built) == before


@pytest.mark.usefixtures("keyboard")
def test_prune_that_is_agreed_to_drops_what_was_shown_and_keeps_its_json_pure(built: Stage) -> None:
    done = built.run("prune", "listings", "--json", answer="y\n")
    dropped = [{"view": "listings", "generation": 1, "version": 1, "state": "retired"}]
    assert json.loads(done.out) == {"dropped": dropped, "failed": [], "unfinished": []}
    assert numbers(built) == [("listings", 2), ("streams", 1), ("then", 3)]


def test_prune_drops_nothing_that_was_not_shown(built: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(*_: Any) -> None:
        """A rollback ends while the question stands: 1 is live, and 2 is the way back."""
        built.registry.put("listings", 1, state="live")
        built.registry.put("listings", 2, state="retired")

    monkeypatch.setattr("headwater.replay.prune.confirm", meanwhile)
    done = built.run("prune", "listings")
    assert (done.code, done.out) == (0, "nothing to drop\n")
    assert built.registry.dropped == []


def test_prune_yes_and_dry_run(built: Stage) -> None:
    before = numbers(built)
    done = built.run("prune", "--all", "--dry-run")
    assert done.out.splitlines() == [
        "would drop generation 1 of listings (version 1, retired)",
        "would drop generation 1 of streams (version 1, building)",
    ]
    assert (done.code, numbers(built)) == (0, before)
    assert len(json.loads(built.run("prune", "--all", "--dry-run", "--json").out)["would_drop"]) == 2
    built.registry.busy.add("streams")
    done = built.run("prune", "--all", "--yes")
    assert (done.code, done.out) == (1, "dropped generation 1 of listings (version 1, retired)\n")
    assert "another rebuild is running" in done.err
    assert done.err.endswith("replay: 1 done; 1 failed (streams)\n")
    assert numbers(built) == [("listings", 2), ("streams", 1), ("then", 3)]
    assert built.run("prune", "listings", "--yes").out == "nothing to drop\n"
    assert built.run("prune", "no_such", "--yes").code == 2


def test_prune_drops_nothing_that_a_plain_name_may_lead_to_after_an_interrupted_publish(built: Stage) -> None:
    built.registry.generations = [
        generation("listings", 1, "retired", published=False),
        generation("listings", 2, "retired"),
        generation("listings", 3, "retired", published=False),
        generation("listings", 4, "live", published=False),
        generation("listings", 5, "building", published=False),
        generation("streams", 1, "building", published=False),
    ]
    refused = (
        'replay: nothing of "listings" was dropped: an alias may still lead to generation 2, 3, because the last '
        "publish did not end, or the registry was restored; run `replay publish listings` first, or rebuild it\n"
    )
    done = built.run("prune", "--all", "--dry-run")
    assert done.out == "would drop generation 1 of streams (version 1, building)\n"
    assert (done.code, done.err) == (1, f"{SHOWN}\n{refused}")
    done = built.run("prune", "--all", "--yes")
    assert (done.code, done.out) == (1, "dropped generation 1 of streams (version 1, building)\n")
    assert refused in done.err
    assert built.registry.dropped == [("streams", 1)]

    for number in range(1, 6):
        built.registry.put("listings", number, published=number == 4)
    assert built.run("prune", "--all", "--yes").code == 0
    assert numbers(built) == [("listings", 4)]


def test_prune_removes_the_checkpoints_of_what_it_drops_unless_their_queries_run(
    built: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path))
    built.registry.generations += [generation("gates", number, "retired") for number in (1, 2)]
    built.registry.generations += [generation("gates", 3, "live")]
    settings = LogSettings.from_environment(os.environ)
    tags = [f"gates@1.g{number}" for number in (1, 2, 3)]
    checkpoints = [Checkpoint.of(settings, tag) for tag in tags]
    for tag, checkpoint in zip(tags, checkpoints, strict=True):
        checkpoint.create()
        write_report(settings, tag, StreamReport())
    with checkpoints[1].held():
        assert built.run("prune", "gates", "listings", "--yes").code == 0
    assert [checkpoint.exists for checkpoint in checkpoints] == [False, True, True]
    assert [read_report(settings, tag) is None for tag in tags] == [True, False, False]
    assert not [path for path in checkpoints[0].folder.parent.iterdir() if "listings" in path.name], "it has none"


def test_drop_asks_too_and_takes_only_what_no_code_declares(built: Stage) -> None:
    assert built.run("drop", "listings", "--yes").code == 2
    assert built.run("drop", "then").code == 2
    done = built.run("drop", "--all", "--yes")
    assert done.out == "dropped generation 3 of then (version 1, live)\n"
    assert done.err == f"{SHOWN}\n"
    assert numbers(built) == [("listings", 1), ("listings", 2), ("streams", 1)]


@pytest.mark.parametrize("verb", [("drop", "--all", "--yes"), ("drop", "then", "--yes"), ("prune", "--all", "--yes")])
def test_nothing_is_dropped_from_a_shell_that_does_not_name_the_modules_of_the_deployment(
    built: Stage, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    before = numbers(built)
    for value in (None, ""):
        monkeypatch.delenv("HEADWATER_MODULES", raising=False)
        if value is not None:
            monkeypatch.setenv("HEADWATER_MODULES", value)
        done = built.run(*verb)
        assert (done.code, done.out, numbers(built)) == (1, "", before)
        assert 'environment variable "HEADWATER_MODULES" is not set or empty: set it to your modules' in done.err
        assert "listings, orders" in done.err


def test_rebuild_goes_on_after_a_view_that_fails_and_tells_both_at_the_end(stage: Stage) -> None:
    stage.failing = {"listing_card": RebuildFailed("listing_card", "bulk", "Valkey is away")}
    done = stage.run("rebuild", "--all")
    assert done.code == 1
    assert [line.split(" ", 1)[0] for line in done.out.splitlines()] == [
        "listings", "listing_search", "city_market", "streams", "hourly_views",
    ]  # fmt: skip
    assert done.err.splitlines()[-2:] == [
        'replay: rebuild of "listing_card" failed during bulk: Valkey is away; the live generation is untouched',
        "replay: 5 done; 1 failed (listing_card)",
    ]


def test_rebuild_as_json_has_progress_on_standard_error_and_one_document_on_standard_output(stage: Stage) -> None:
    stage.failing = {"listings": RebuildFailed("listings", "bulk", "no")}
    done = stage.run("rebuild", "listings", "streams", "listings", "--json")
    document = json.loads(done.out)
    assert [view["view"] for view in document["views"]] == ["streams"]
    assert [view["view"] for view in document["failed"]] == ["listings"]
    assert "streams: bulk 1,200,000 of 2,000,000" in done.err.splitlines()
    assert done.code == 1


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ZeroDivisionError("a defect")])
def test_rebuild_that_is_interrupted_tells_what_was_swapped_until_then(stage: Stage, end: BaseException) -> None:
    stage.failing = {"streams": end}
    try:
        done = stage.run("rebuild", "listings", "streams", "listing_card")
    except ZeroDivisionError:
        return  # a defect is shown as one, with its traceback
    assert done.out.startswith("listings is now generation 2")
    assert "replay: 1 done; 0 failed; 2 not finished (streams, listing_card)" in done.err
    assert done.code != 0


def test_rollback_and_publish_take_several_views(built: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert built.run("rollback", "listings", "streams").out.splitlines() == [
        "listings: rolled back to generation 2; 2,000,000 patches applied",
        "streams: rolled back to generation 2; 2,000,000 patches applied",
    ]
    monkeypatch.setattr("headwater.replay.prune.publish_live", lambda view, *_: generation(view.name, 7, "live"))
    assert built.run("publish", "streams", "listings").out.splitlines() == [
        "streams: the aliases lead to generation 7",
        "listings: the aliases lead to generation 7",
    ]


def test_diff_names_the_generations_that_are_there(built: Stage) -> None:
    done = built.run("diff", "listings", "listings@g9")
    known = [each.generation for each in built.registry.of("listings")]
    assert known
    named = " or ".join(f"listings@g{each}" for each in known)
    assert (done.code, done.err) == (1, f'replay: view "listings" has no generation 9: use {named}\n')


def test_diff_of_a_view_that_is_not_there_names_the_views(built: Stage) -> None:
    done = built.run("diff", "listngs@g1", "listings")
    assert done.code == 2
    assert done.err.startswith('replay: unknown view "listngs": use one of city_market, ')
