"""Tests of aggregates and processes, for `headwater.testing`: given, when, then, run by the production code.

May import all of `commands`. Only `contracts` needs the extra `testing` (pytest and hypothesis).
"""
