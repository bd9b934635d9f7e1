"""The statements of the registry of generations; `{schema}` is the environment's."""

from __future__ import annotations

import re
from typing import Final

SCHEMA = """
-- every generation of every view; base: log offsets that bulk covered, start: patches offsets to start from;
-- stores: where it was built; declaration: its lines; published: whether the aliases lead to it;
-- events, seconds: what bulk read and how long it took;
-- source, selection: of a view made with --as, its source view and the selected events;
-- replays, next_replay: how often upkeep has replayed the view in a row, and when it may do so again;
-- kept: by store, until when it was kept up to date at least, in seconds since 1970;
-- row_types: the types of its fields and columns, as lines;
-- topics: the ids of the topics that it was built from
CREATE TABLE IF NOT EXISTS {schema}.generations (
    view        text NOT NULL,
    generation  integer NOT NULL,
    version     integer NOT NULL,
    tag         text NOT NULL,
    fingerprint text NOT NULL,
    state       text NOT NULL CHECK (state IN ('building', 'live', 'retired')),
    base        jsonb NOT NULL,
    start       jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    live_at     timestamptz,
    stores      jsonb NOT NULL,
    declaration jsonb NOT NULL,
    published   boolean NOT NULL,
    events      bigint,
    seconds     double precision,
    source      text,
    selection   text,
    replays     integer,
    next_replay timestamptz,
    kept        jsonb NOT NULL DEFAULT '{{}}',
    row_types   jsonb NOT NULL,
    topics      jsonb NOT NULL,
    PRIMARY KEY (view, generation)
);

-- the last number given to a generation of each view: none is used twice, because a writer to one may outlive it; if
-- this database is restored, the other stores show later ones, and the next number is above those, too
CREATE TABLE IF NOT EXISTS {schema}.generation_numbers (view text PRIMARY KEY, last integer NOT NULL);

-- the current generation of each view; another version may also have a live one
CREATE TABLE IF NOT EXISTS {schema}.live_views (
    view       text PRIMARY KEY,
    generation integer NOT NULL,
    FOREIGN KEY (view, generation) REFERENCES {schema}.generations
);

-- the folders in which read sides keep the state of stream views, and when each was last in use
CREATE TABLE IF NOT EXISTS {schema}._state_places (
    id       text PRIMARY KEY,
    place    text NOT NULL,
    noted_at timestamptz NOT NULL
);

-- how far the rebuild of each view is, as long as it runs; changed_at: when that last changed
CREATE TABLE IF NOT EXISTS {schema}._rebuilds (
    view       text PRIMARY KEY,
    phase      text NOT NULL,
    done       bigint NOT NULL,
    total      bigint NOT NULL,
    changed_at timestamptz NOT NULL
);

-- views that an operator has paused: no generation of them is loaded or built
CREATE TABLE IF NOT EXISTS {schema}._paused_views (view text PRIMARY KEY, since timestamptz NOT NULL);
"""

NOTE_REBUILD = """
INSERT INTO {schema}._rebuilds (view, phase, done, total, changed_at) VALUES (%s, %s, %s, %s, now())
ON CONFLICT (view) DO UPDATE
SET phase = excluded.phase, done = excluded.done, total = excluded.total, changed_at = excluded.changed_at
"""

FORGET_REBUILD = "DELETE FROM {schema}._rebuilds WHERE view = %s"

# a rebuild that was killed has left its row, but holds no lock
REBUILDS = """
SELECT view, phase, done, total, extract(epoch FROM changed_at)::double precision AS changed_s
FROM {schema}._rebuilds ORDER BY view
"""

NOTE_STATE_PLACE = """
INSERT INTO {schema}._state_places (id, place, noted_at) VALUES (%s, %s, now())
ON CONFLICT (id) DO UPDATE SET place = excluded.place, noted_at = excluded.noted_at
"""

FORGET_STATE_PLACES = "DELETE FROM {schema}._state_places WHERE noted_at < now() - interval '30 days'"

STATE_PLACES = """
SELECT id, place, extract(epoch FROM now() - noted_at)::double precision AS age_s
FROM {schema}._state_places ORDER BY noted_at DESC
"""

TABLES: Final = re.findall(r"CREATE TABLE IF NOT EXISTS \{schema\}\.(\w+)", SCHEMA)

# whether SCHEMA has nothing to do: it locks the table, and would wait for everybody who reads it
IS_PREPARED = """
SELECT NOT EXISTS (SELECT FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL)
"""

# the connection that holds the rebuild lock waits for hours (PostgreSQL before version 14 has no such limit)
STAY_IDLE = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"

COLUMNS = (
    "view, generation, version, tag, fingerprint, state, base AS bulk_ends, start AS patch_starts, "
    "created_at, live_at, stores, declaration, published, events, seconds, source, selection, replays, next_replay, "
    "kept, row_types, topics, now() AS read_at, "
    "(SELECT since FROM {schema}._paused_views AS paused WHERE paused.view = generations.view) AS paused_since"
)

ALL = f"SELECT {COLUMNS} FROM {{schema}}.generations ORDER BY view, generation"  # noqa: S608

LIVE = f"""
SELECT {COLUMNS} FROM {{schema}}.generations JOIN {{schema}}.live_views USING (view, generation) ORDER BY view
"""  # noqa: S608

BEGIN = f"""
WITH number AS (
    INSERT INTO {{schema}}.generation_numbers AS given (view, last)
    SELECT %(view)s, greatest(max(generation), %(above)s) + 1 FROM {{schema}}.generations WHERE view = %(view)s
    ON CONFLICT (view) DO UPDATE SET last = greatest(given.last, %(above)s) + 1
    RETURNING last
)
INSERT INTO {{schema}}.generations
    (view, generation, version, tag, fingerprint, state, base, start, stores, declaration, row_types, published,
     source, selection, topics)
SELECT %(view)s, last, %(version)s, %(tag)s, %(fingerprint)s,
       'building', %(base)s, %(start)s, %(stores)s, %(declaration)s, %(row_types)s, false,
       %(source)s, %(selection)s, %(topics)s
FROM number
RETURNING {COLUMNS}
"""  # noqa: S608

# each version has one live generation
SERVED = f"SELECT {COLUMNS} FROM {{schema}}.generations WHERE state = 'live' ORDER BY view, version"  # noqa: S608

CURRENT = """
SELECT generation, version FROM {schema}.generations JOIN {schema}.live_views USING (view, generation)
WHERE view = %s FOR UPDATE
"""

# what stays live after a swap: one generation of one other version, the current one if it has another version
OUTDATE = """
UPDATE {schema}.generations AS old SET state = 'retired'
FROM {schema}.generations AS new
WHERE new.view = %(view)s AND new.generation = %(generation)s
  AND old.view = new.view AND old.state = 'live' AND old.generation <> new.generation
  AND old.generation IS DISTINCT FROM (
    SELECT kept.generation FROM {schema}.generations AS kept
    WHERE kept.view = new.view AND kept.state = 'live' AND kept.version <> new.version
    ORDER BY kept.generation = %(current)s DESC NULLS LAST, kept.live_at DESC LIMIT 1
  )
"""

WITHDRAWN = "UPDATE {schema}.generations SET state = 'retired' WHERE view = %s AND state = 'live'"

RETIRE = """
UPDATE {schema}.generations SET state = 'retired' WHERE view = %(view)s AND generation = ANY(%(generations)s)
  AND state = 'live' AND generation NOT IN (SELECT generation FROM {schema}.live_views WHERE view = %(view)s)
"""

MARK_LIVE = """
UPDATE {schema}.generations SET state = 'live', live_at = now()
WHERE view = %(view)s AND generation = %(generation)s RETURNING version
"""

SWAP = """
INSERT INTO {schema}.live_views (view, generation) VALUES (%(view)s, %(generation)s)
ON CONFLICT (view) DO UPDATE SET generation = excluded.generation
"""

# a view that is paused already keeps its time
PAUSE = """
INSERT INTO {schema}._paused_views (view, since) VALUES (%s, now())
ON CONFLICT (view) DO UPDATE SET since = _paused_views.since RETURNING since
"""

RESUME = "DELETE FROM {schema}._paused_views WHERE view = %s RETURNING since"

PAUSED_VIEWS = "SELECT view, since FROM {schema}._paused_views ORDER BY view"

PUBLISHED = "UPDATE {schema}.generations SET published = (generation = %s) WHERE view = %s"

UNPUBLISHED = "UPDATE {schema}.generations SET published = false WHERE view = %s AND generation = %s"

WITHDRAW = "DELETE FROM {schema}.live_views WHERE view = %s"

FORGET = "DELETE FROM {schema}.generations WHERE view = %s AND generation = %s AND state <> 'live'"

MEASURED = "UPDATE {schema}.generations SET events = %s, seconds = %s WHERE view = %s AND generation = %s"

PUT_OFF = """
UPDATE {schema}.generations SET replays = %(replays)s, next_replay = now() + %(pause_s)s * interval '1 second'
WHERE view = %(view)s AND tag = %(tag)s AND state = 'live'
"""

KEPT = """
UPDATE {schema}.generations
SET kept = kept || jsonb_build_object(%(store)s::text, extract(epoch FROM now()) - %(age_s)s)
WHERE view = %(view)s AND generation = %(generation)s
"""

FOLLOW_COPY = """
UPDATE {schema}.generations SET topics = jsonb_set(topics, ARRAY[%(topic)s], to_jsonb(%(copy)s::text))
WHERE topics ->> %(topic)s = %(from)s
"""

CONNECTED = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()
"""

LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
UNLOCK_ALL = "SELECT pg_advisory_unlock_all()"

# an advisory lock on a bigint is listed by its two halves
HOLDER = """
SELECT application_name
       || coalesce(', since ' || to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'), '')
FROM pg_locks JOIN pg_stat_activity USING (pid), hashtextextended(%s, 0) AS held
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND (classid::bigint << 32 | objid::bigint) = held
"""

HELD = """
SELECT name FROM unnest(%s::text[]) AS name
WHERE hashtextextended(name, 0) IN (
  SELECT classid::bigint << 32 | objid::bigint FROM pg_locks
  WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""
