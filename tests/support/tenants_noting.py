"""A view of tenants' accounts that looks up events, by a text that its writers choose."""

from __future__ import annotations

from headwater import Claim, Lookup, Postgres, TableView, envelope, last
from tests.support.tenants import Opened

notes = TableView(
    name="notes",
    key=envelope("stream"),
    key_name="stream",
    columns={"tenant": last({Opened: "tenant"}), "note": last({Opened: "owner"})},
    stores=(Postgres(),),
    lookups=(Lookup("streams", on="note", columns={"event": "record", "happened": "type"}),),
    readable_by={"tenant": Claim("tenant")},
)
