"""Places in records of `process-inbox`: found whatever the record holds, and bounded in what an instance remembers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from headwater.commands.handling.refusals import REFUSED
from headwater.commands.reacting.causes import Places, SourcePlace, has_passed, passed, place_of, placed, retried
from headwater.eventlog.envelope import Envelope, decode, encode
from headwater.eventlog.errors import NotAnEnvelope

PLACE = SourcePlace("events/3", 7)
MIMICS = '"routedfrom":"events/9","routedoffset":9'
WORST: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a text that looks like a place": {"note": f",{MIMICS}}}"},
    "members that look like a place": {"a": 1, "routedfrom": "events/9", "routedoffset": 9},
    "members within members": {"a": {"b": 1, "routedfrom": "events/9", "routedoffset": 9}},
    "other characters": {"ü": "\U0001f600" * 500},
    "large integers": {"n": 2**64 - 1},
}


def envelope(data: dict[str, Any]) -> Envelope:
    return Envelope("order/O/1", "order.placed", "order/O", datetime(2026, 1, 2, tzinfo=UTC), data, sequence=1)


@pytest.mark.parametrize("data", WORST.values(), ids=WORST.keys())
@pytest.mark.parametrize("end", [b"", b" \r\n\t"])
def test_a_place_is_found_and_the_envelope_is_the_same(data: dict[str, Any], end: bytes) -> None:
    value = encode(envelope(data)) + end
    with pytest.raises(NotAnEnvelope, match="does not say where a router has read it"):
        place_of(value, envelope(data))
    with_place = placed(value, PLACE)
    assert decode(with_place) == decode(value)
    assert place_of(with_place, envelope(data)) == PLACE
    late = retried(with_place)
    assert place_of(late, envelope(data)) == structs.replace(PLACE, is_retried=True)
    assert retried(late) == late
    assert decode(late) == decode(value)


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b'{"routedfrom":"a"}', b'x,"routedfrom":"a"}', b',"routedfrom":"\xff"}']
)
def test_what_has_no_place_is_refused(value: bytes | None) -> None:
    with pytest.raises(NotAnEnvelope):
        place_of(value, envelope({}))


def test_a_refusal_has_the_place_of_its_command() -> None:
    refusal = Envelope("r", REFUSED, "headwater.refused/2", datetime(2026, 1, 2, tzinfo=UTC), {}, sequence=6)
    assert place_of(encode(refusal), refusal) == SourcePlace("headwater.refused/2", 5)


def test_places_only_grow_and_types_are_apart() -> None:
    places: Places = {}
    places = passed(places, SourcePlace("events/3", 7), "a")
    places = passed(places, SourcePlace("events/3", 5), "b")
    places = passed(places, SourcePlace("events/1", 0), "a")
    assert places == {"events/3": {"a": 7, "b": 5}, "events/1": {"a": 0}}
    assert passed(places, SourcePlace("events/3", 6), "a") == places
    for offset, kind, expected in ((7, "a", True), (8, "a", False), (6, "b", False), (0, "c", False)):
        assert has_passed(places, SourcePlace("events/3", offset), kind) is expected
    assert not has_passed(places, SourcePlace("events/2", 0), "a")


def test_places_of_a_topic_that_was_made_anew_replace_those_of_the_former_one() -> None:
    places: Places = {}
    for source in ("views.v@one/x/3", "views.v@one/x/4", "views.vv@one/x/3", "events/3"):
        places = passed(places, SourcePlace(source, 9), "views.v")
    places = passed(places, SourcePlace("views.v@two/x/3", 0), "views.v")
    assert places == {
        "views.v@one/x/4": {"views.v": 9},
        "views.vv@one/x/3": {"views.v": 9},
        "events/3": {"views.v": 9},
        "views.v@two/x/3": {"views.v": 0},
    }
