"""The limits of sizes, counts and times that the read side keeps to, and what each protects.

Limits of one store are in its package; those of records are in `eventlog/limits.py`.
"""

from __future__ import annotations

from typing import Final

# what users meet

MAX_DISTINCT: Final = 10_000
"""Values of `distinct` in one row: a row is read and written as a whole whenever one of its events comes."""
MAX_LISTED: Final = 1_000
"""Items that `collect`, `members` and their like keep of one row, for the same reason."""
MAX_PARTS: Final = 1_000
"""Parts of a `nested` column of one row, for the same reason."""
MAX_STATE_BYTES: Final = 1_000_000
"""State of one key of `in_order`, as JSON: it is read and written whenever a row of the key comes."""
MAX_ROWS: Final = 20
"""Rows of one match of a pattern: the state of a key has up to so many unfinished matches, each with as many rows."""

# the memory of a task that folds

ROWS_IN_MEMORY: Final = 200_000
"""Rows that a task folds before it moves them to its chunks."""
ENTRIES_IN_MEMORY: Final = 500_000
"""Entries of their lists likewise, which all views share: few rows can have long lists."""
MAX_SHARERS: Final = 4
"""Views that share the rows; each of more has as many as one of four: fewer would make too many small chunks."""
CHECKED_RECORDS: Final = 100_000
"""Records between two counts of entries, which take time."""
SHARE_BYTES: Final = 16 * 1024 * 1024
"""Encoded rows of a share without a file, which is sent to the process that asked for it."""
NAMED_LETTERS: Final = 10_000
"""Unreadable records of a view in one task that are named, and become dead letters; all are counted."""
ROWS_COMBINED: Final = 500_000
"""Rows that a task combines in memory."""
ENTRIES_COMBINED: Final = 500_000
"""Entries of their lists likewise; see `Fold.entries`."""
MAX_RUNS: Final = 64
"""Sorted runs that are merged at a time, with a file open for each; more are merged into one first."""
BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch on its way to a store."""
BATCH_ENTRIES: Final = 100_000
"""Entries of their lists, about."""

# how a fold is spread

FEW_OFFSETS: Final = 10_000
"""Fewer are not worth another process."""
TASK_OFFSETS: Final = 2_000_000
"""Offsets of a task, about; progress of Spark's tasks is reported at their end."""
BUCKET_OFFSETS: Final = 250_000
"""Rows of a bucket, at most; see `tasks.groups`."""
MAX_BUCKETS: Final = 1024
"""Buckets of a fold: each task has a chunk per bucket."""
SLICE_OFFSETS: Final = 20_000_000
"""Of all partitions together, after which what was folded is kept; less than a minute of folding on two cores."""
MAX_LOCAL_OFFSETS: Final = 5_000_000
"""Offsets that local processes fold; for more, the time until Spark has started does not matter."""

# a rebuild

MAX_TOGETHER: Final = 16
"""Views that are rebuilt in one pass: each has loaders of its own until the running ones take over."""
QUERIES_TOGETHER: Final = 2
"""Views whose own queries run at once: each has its state in memory. More were no faster, on two cores."""
MAX_REFUSED: Final = 10_000
"""Rows of one task. A store that refuses more does not refuse values, but the view; see also MANY_ROWS."""
MANY_ROWS: Final = 10_000
MANY_SHARE: Final = 0.1
"""A store that refuses more rows than these, by number and by share, does not refuse values, but the view."""
FEW_ROWS: Final = 10
"""So does one that refuses every row of more than these."""
CAUGHT_UP_PATCHES: Final = 200
CAUGHT_UP_S: Final = 0.5
"""A generation has caught up if it is at most this far behind `patches`, by either limit: under load, new patches
always come.
"""
NO_CLOSER_S: Final = 30 * 60.0
"""How long a generation that is behind may come no closer: then patches come faster than they are applied."""
AWAY_S: Final = 30.0
"""How long a store may be unavailable during a rebuild, usually: it may be starting again."""
INDEX_AWAY_S: Final = 180.0
"""How long while it builds its indexes, which may take longer than a client waits: a failure would repeat the whole
rebuild.
"""

# what stores write and read at once

GROUP_BYTES: Final = 8 * 1024 * 1024
"""Encoded rows that are combined and written together; as Python objects they take ten to twenty times the memory."""
FIRST_ROWS: Final = 100
"""Rows of the first group of a generation that this process has not seen yet: 100 rows with long lists may be 50 MB."""
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""About, of patches that a rebuild applies together: an event of 1 MiB may be in each, and the rows that a store
refuses are often those with long values.
"""
BULK_ROWS: Final = 1_000
"""Rows of one request of bulk, if they are small."""
CHUNK_ROWS: Final = 1_000
"""Rows that are read at a time to compare generations."""
BATCH_RECORDS: Final = 5_000
"""Records of `patches` that a loader applies together."""
ATTEMPTS: Final = 20
"""How often a row is read again because another writer was faster; there are rarely two writers."""
