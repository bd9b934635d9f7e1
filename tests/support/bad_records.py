"""Records that are not events, and a part of the reason that they are told to be none."""

from __future__ import annotations

BAD = {
    b"{": "malformed JSON",
    b'"text"': "malformed JSON",
    b"": "malformed JSON",
    b"{}": '"specversion"',
    b'\xff{"specversion":"1.0"}': "not UTF-8",
    b'{"specversion":"0.3","id":"a","type":"t","subject":"s","sequence":1}': '"specversion" is not "1.0"',
    b'[{"specversion":"1.0","id":"a","type":"t","subject":"s","sequence":1}]': "malformed JSON",
    b'{"specversion":"1.0","id":"a","type":"t","subject":"s","sequence":1} more': "not one JSON object",
    b'{"specversion":"1.0","type":"t","subject":"s","sequence":1}': '"id" is missing',
    b'{"specversion":"1.0","id":"a","type":"","subject":"s","sequence":1}': '"type" is missing',
    b'{"specversion":"1.0","id":"a","type":"t","sequence":1}': '"subject" is missing',
    b'{"specversion":"1.0","id":"a","type":"t","subject":"s"}': '"sequence" is missing',
}
