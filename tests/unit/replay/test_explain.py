"""`replay explain`: the source of a view, as a rebuild runs it."""

from __future__ import annotations

from headwater.projections.kinds import table_view
from headwater.projections.registry import ViewRegistry
from tests.unit.replay.played import Stage


def test_the_source_of_a_view_is_shown_as_it_runs(stage: Stage, shipped: ViewRegistry) -> None:
    done = stage.run("explain", "city_market")
    assert done.code == 0
    first, *rest = done.out.splitlines()
    names = [field.name for field in shipped.views["city_market"].layout.fields]
    assert first == "# the fields of a row: " + ", ".join(f"{at} {name}" for at, name in enumerate(names))
    found: dict[str, object] = {f"monoid_{at}": None for at in range(9)}
    exec(compile("\n".join(rest), "shown", "exec", dont_inherit=True), found)  # noqa: S102
    events = table_view(shipped.view("city_market")).plan.events
    assert [name for name in found if name.startswith("fold_")] == [f"fold_{at}" for at in range(len(events))]


def test_an_unknown_view_is_refused_by_name(stage: Stage) -> None:
    done = stage.run("explain", "nothing")
    assert done.code == 2
    assert "nothing" in done.err


def test_the_live_query_of_a_view_is_shown_as_sql(stage: Stage, shipped: ViewRegistry) -> None:
    done = stage.run("explain", "city_market", "--live")
    assert done.code == 0
    assert done.out.startswith("with step_1 as (\nselect\n  substring(topic, ")
    assert "when type = 'listing.sold' then" in done.out
    assert done.out.rstrip().splitlines()[-1].startswith("from step_")
