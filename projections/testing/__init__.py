"""Tests of views, for `headwater.testing`: given events, then rows.

May import all rooms of projections but `service`. Only `contracts` needs the extra `testing`, and only `streams` Spark.
"""
