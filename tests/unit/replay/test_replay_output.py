"""What people see of `replay`, on a terminal of 80 columns, and what pipes get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from textwrap import dedent

import pytest
from rich.console import Console

from headwater.commands.declaring.event_versions import fields_of
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, STARTS
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.registry.state_files import StreamReport
from headwater.projections.running_parts import STREAMS
from headwater.projections.stores.backend import Size
from headwater.replay.output import size_text
from headwater.replay.verbs import Bars, Lines, bars
from tests.unit.replay.played import WIDTH, Stage, generation, lag


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def golden(text: str) -> list[str]:
    return lines(dedent(text).strip("\n"))


@pytest.fixture
def built(stage: Stage) -> Stage:
    """Views of which one was made with --as, one is lost, and one not built."""
    stage.registry.generations = [
        generation("listings", 1, "retired"),
        generation("listings", 2, "live"),
        generation("listing_card", 1, "live", ("valkey",), published=False),
        generation("then", 1, "live", source="listings", selection="until 2026-01-31T12:00:00Z"),
    ]
    stage.sizes = {"postgres": Size(932_000, 290_400_000), "valkey": Size(None, None)}
    ledger = "its ledger or the patches that it needs are gone: run `replay rebuild listing_search`"
    stage.lags = [
        lag("city_market", standing="not built", generation=None, position={}, lag_events=None, freshness_s=None),
        lag("listing_search", "elasticsearch", "lost", lag_events=None, freshness_s=None, problem=ledger),
        lag("listings", generation=12, lag_events=1_234_567, freshness_s=12_345.6789),
    ]
    return stage


def test_status_on_a_terminal(built: Stage) -> None:
    done = built.run("status", terminal=True)
    assert lines(done.out) == golden("""
        view            store          standing   gen  events behind  seconds behind
        city_market     postgres       not built    -              -               -
        listing_search  elasticsearch  lost         2              -               -
        listings        postgres       caught up   12      1,234,567        12,345.7
        listing_search in elasticsearch is lost: its ledger or the patches that it needs are gone: run `replay rebuild listing_search`
    """)  # noqa: E501
    assert done.code == 3


def test_status_names_stream_views_whose_queries_are_not_here(stage: Stage) -> None:
    here = lag("listings", query=STREAMS, stream=StreamReport(batch=3))
    elsewhere = [
        lag(name, place, query=STREAMS) for name in ("city_market", "streams") for place in ("postgres", "cache")
    ]
    stage.lags = [here, *elsewhere]
    *_, known, unknown = lines(stage.run("status", terminal=True).out)
    assert known.startswith("listings: batch 3 took")
    assert unknown == (
        "not on this machine, or without records so far: the queries of city_market, streams; what they do is shown on "
        "the machine of `headwater projections`"
    )
    stage.lags = [here, lag("streams")]
    assert "machine" not in stage.run("status", terminal=True).out


def test_status_in_a_pipe(built: Stage) -> None:
    done = built.run("status")
    head, *rows = [line.split("\t") for line in done.out.splitlines()]
    assert head == [
        "view", "store", "standing", "gen", "events behind", "seconds behind", "version", "position", "problem",
    ]  # fmt: skip
    positions = "0:1234500,1:1234501,2:1234502,3:1234503"
    assert rows[0] == ["city_market", "postgres", "not built", "-", "-", "-", "1", "-", "-"]
    assert rows[1][-1] == built.lags[1].problem
    assert rows[2] == ["listings", "postgres", "caught up", "12", "1234567", "12345.7", "1", positions, "-"]
    assert (done.code, done.err) == (3, "")


def test_status_says_once_why_the_query_of_a_stream_view_failed(stage: Stage) -> None:
    why = "its query failed: ZeroDivisionError: division by zero (/shop/views.py:8)"
    failed = StreamReport(batch=3, failure=why.removeprefix("its query failed: "))
    stage.lags = [
        lag("listings", store, "stalled", query=STREAMS, stream=failed, problem=why) for store in ("postgres", "valkey")
    ]
    assert [line.split("\t")[-1] for line in stage.run("status").out.splitlines()[1:]] == [why, why]
    *_, listed = lines(stage.run("status", terminal=True).out)
    assert listed.endswith("; FAILED: ZeroDivisionError: division by zero (/shop/views.py:8)")
    assert stage.run("status", terminal=True).out.count("division by zero") == 1


def test_status_of_some_views_ends_with_what_these_need(built: Stage) -> None:
    assert built.run("status", "listings").code == 0
    done = built.run("status", "listings", "listing_search", "--json")
    assert [view["view"] for view in json.loads(done.out)] == ["listing_search", "listings"]
    assert done.code == 3
    done = built.run("status", "no_such")
    assert (done.code, done.out) == (2, "")
    assert 'unknown view "no_such"' in done.err


@pytest.mark.parametrize("standing", ["stalled", "lost", "away", "not built"])
def test_status_tells_scripts_that_a_view_needs_attention(stage: Stage, standing: str) -> None:
    stage.lags = [lag("listings"), lag("streams", standing=standing)]
    assert stage.run("status").code == 3
    stage.lags = [lag("listings")]
    assert stage.run("status").code == 0


def test_a_rebuild_reports_views_as_they_were_asked_for_in_whatever_order_they_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order = stage.rebuild_all
    monkeypatch.setattr(stage, "rebuild_all", lambda views, *more, **options: in_order(views[::-1], *more, **options))
    wanted = ["listings", "city_market", "listing_search"]
    done = stage.run("rebuild", *wanted, "--json")
    assert [view["view"] for view in json.loads(done.out)["views"]] == wanted


def test_generations_on_a_terminal(built: Stage) -> None:
    done = built.run("generations", terminal=True)
    assert lines(done.out) == golden("""
        view          gen  version  state       rows  size    built
        listing_card    1        1  live           -  -       2026-11-22 09:01Z
        listings        1        1  retired  932,000  290 MB  2026-11-22 09:01Z
        listings        2        1  live     932,000  290 MB  2026-11-22 09:02Z
        then            1        1  live     932,000  290 MB  2026-11-22 09:01Z
        then@g1 is made from listings, until 2026-01-31T12:00:00Z
        listing_card: the aliases do not lead to generation 1; run `replay publish listing_card`
    """)
    assert done.code == 0


def test_generations_in_a_pipe_and_as_json(built: Stage) -> None:
    (_, row) = [line.split("\t") for line in built.run("generations", "then").out.splitlines()]
    assert row == [
        "then", "1", "1", "live", "932000", "290 MB", "2026-11-22 09:01Z", "2026-11-22 09:01Z", "2000000", "8.2",
        "listings, until 2026-01-31T12:00:00Z", "yes",
    ]  # fmt: skip
    found = json.loads(built.run("generations", "--json").out)
    assert [(row["view"], row["generation"], row["live"]) for row in found] == [
        ("listing_card", 1, True), ("listings", 1, False), ("listings", 2, True), ("then", 1, True),
    ]  # fmt: skip
    assert found[1]["stores"] == {"postgres": {"rows": 932_000, "size_bytes": 290_400_000}}
    assert built.run("generations", "streams").code == 0, "declared, and not built"
    assert built.run("generations", "no_such").code == 2


def test_a_store_that_lost_a_generation_leaves_its_line(built: Stage) -> None:
    built.sizes = {}
    assert lines(built.run("generations", "listings", terminal=True).out)[1:] == [
        "listings    1        1  retired     -     -  2026-11-22 09:01Z",
        "listings    2        1  live        -     -  2026-11-22 09:02Z",
    ]


def test_list_on_a_terminal(stage: Stage) -> None:
    assert lines(stage.run("list", "listings", "streams", terminal=True).out) == golden("""
        view      version  key         stores    description
        listings        1  listing_id  postgres  Every listing: its details, status,
                                                 number of price changes, first and last
                                                 price.
        streams         1  event_id    postgres  Every event, by its stream and version.
    """)


def test_plan_on_a_terminal(built: Stage) -> None:
    built.registry.generations = [generation("listings", 2, "live"), generation("gone", 1, "live")]
    done = built.run("plan", "streams", "gone", terminal=True)
    assert lines(done.out) == golden("""
        view     live version  declared  what happens  offsets  seconds
        streams  -             1         build               0      0.0
        gone     1             -         left over           -        -
        gone: not declared by this code; `replay drop gone` removes it
    """)
    assert built.run("plan").code == 3, "listings changed, and is the same version"


def note_fields(stage: Stage, fields: Mapping[str, str]) -> None:
    noted = json.dumps({"fields": fields, "nested": {}}).encode()
    stage.log.submit(Entry(STARTS, "events/listing.sold/1", noted, 1), 0)


def test_plan_names_events_that_changed_without_a_version(stage: Stage) -> None:
    event = CommandRegistry.load(["listings"]).events["listing.sold"]
    before = {name: kind for name, kind in fields_of(event).items() if name != "city"}
    note_fields(stage, before)
    sold = encode(Envelope("listing/L1/1", event.type, "listing/L1", datetime(2026, 1, 2, tzinfo=UTC), {}))
    stage.log.submit(Entry(EVENTS, "listing/L1/1", sold, 1), 0)
    done = stage.run("plan", "streams")
    (problem,) = done.err.splitlines()
    assert done.code == 3
    assert problem.startswith('replay: event "listing.sold" (')
    assert problem.endswith(
        '): "city" was added after version 1 was deployed, so earlier events cannot be read: declare version=2, and '
        'upcast(1, default("city", …)) in its history'
    )
    as_json = stage.run("plan", "streams", "--json")
    assert as_json.code == 3
    assert json.loads(as_json.out)["events"] == {"listing.sold": [problem.removeprefix("replay: ")]}
    assert stage.run("plan", "hourly_views").code == 0, "it does not read this event"
    note_fields(stage, fields_of(event))
    assert (stage.run("plan", "streams").code, stage.run("plan", "streams").err) == (0, "")


@pytest.mark.parametrize("words", [("status",), ("generations",), ("list",), ("plan", "listings", "streams")])
def test_no_table_is_wider_than_the_terminal_and_no_pipe_sees_boxes(built: Stage, words: tuple[str, ...]) -> None:
    longest = "a" * 41  # as long as the name of a view may be
    built.lags.append(lag(longest, "elasticsearch", "caught up", lag_events=123_456_789, freshness_s=86_400.0))
    built.registry.generations.append(generation(longest, 2, "live"))
    shown = built.run(*words, terminal=True).out
    table = [line for line in lines(shown) if ": " not in line and "`" not in line]
    assert table
    assert max(map(len, table)) <= WIDTH
    assert "…" not in shown
    piped = built.run(*words).out
    assert {line.count("\t") for line in piped.splitlines()} == {piped.splitlines()[0].count("\t")}
    assert not set(piped) & set("─│┃━╭…")


def test_dead_letters_cannot_play_with_the_terminal(stage: Stage) -> None:
    value = b"[/red] \x1b[31mred\x07 [bold]\ttab\nline :smile:"
    letter = Letter('cannot be read: "[/x]"', "2026-01-02T03:04:05.678Z", b"poor\nthing", value)
    stage.log.submit(Entry(DEAD_LETTERS, "events/1/42", letter.to_json(), 0), 0).result()
    shown = lines(stage.run("dead-letters", "list", terminal=True).out)
    assert shown == golden("""
        events/1/42
          2026-01-02T03:04:05.678Z  cannot be read: "[/x]"
          poor thing [/red]  [31mred  [bold] tab line :smile:
    """)
    (_, row) = stage.run("dead-letters", "list").out.splitlines()
    assert row.split("\t")[0] == "events/1/42"
    assert row.count("\t") == 3


def test_bars_fit_the_terminal_and_show_the_phase_that_a_view_is_in() -> None:
    console = Console(file=StringIO(), width=WIDTH, force_terminal=True, color_system=None)
    progress, longest = bars(console), "a" * 41
    show = Bars(progress)
    for view in ("listings", longest):
        show(Step(view, "bulk", 1_200_000, 2_000_000))
    show(Step("listings", "index"))
    with console.capture() as captured:
        console.print(progress.get_renderable())
    one, other = sorted(lines(captured.get()))
    assert one.startswith("aaaa")
    assert "… bulk" in one and one.endswith("1,200,000/2,000,000  --:--")
    assert other.split()[:2] == ["listings", "index"]
    assert "2,000,000" not in other, "a phase in which nothing is counted"
    assert max(len(one), len(other)) <= WIDTH


def test_progress_that_nobody_watches_is_a_line_now_and_then() -> None:
    written: list[str] = []
    clock = iter([0.0, 1.0, 9.9, 10.0, 11.0])
    show = Lines(written.append, lambda: next(clock))
    for done in (0, 100, 900, 1_000):
        show(Step("listings", "bulk", done, 2_000))
    show(Step("listings", "index"))
    assert written == ["listings: bulk", "listings: bulk 1,000 of 2,000", "listings: index"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(None, None), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (290_400_000, "290 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes(size_bytes: int | None, text: str | None) -> None:
    assert size_text(size_bytes) == text
