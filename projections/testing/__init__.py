"""Tests of views, for `headwater.testing`: given events, then rows.

May import `stores`, `table`, `commands` and `eventlog`. Only `contracts` needs the extra `testing`.
"""
