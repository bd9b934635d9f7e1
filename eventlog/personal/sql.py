"""The statements of the store of keys in PostgreSQL; {schema} is that of the deployment."""

from __future__ import annotations

from typing import Final

STORE: Final = "SELECT id FROM {schema}.key_store"
ADD_STORE: Final = "INSERT INTO {schema}.key_store SELECT %s WHERE NOT EXISTS (SELECT FROM {schema}.key_store)"
RENAME_STORE: Final = "UPDATE {schema}.key_store SET id = %s"

EXISTS: Final = "SELECT to_regclass(%s) IS NOT NULL"

# wrapped, wrapped_by: the key, and the id of the master key that has wrapped it; null once the key is destroyed.
# erasure: the number of its erasure, in the order in which erasures are committed; by the clock, so that the numbers of
# a store that is restored from a backup go on above those that others have noted.
# A row that is updated leaves its old version, with the wrapped key, in the heap until a vacuum.
CREATE: Final = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.person_keys (
    key_id text PRIMARY KEY,
    person text NOT NULL,
    wrapped bytea,
    wrapped_by text,
    created timestamptz NOT NULL DEFAULT now(),
    erased timestamptz,
    erasure bigint UNIQUE,
    CHECK ((wrapped IS NULL) = (erased IS NOT NULL)),
    CHECK ((wrapped IS NULL) = (erasure IS NOT NULL))
);
CREATE TABLE IF NOT EXISTS {schema}.key_store (id text NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS person_keys_living ON {schema}.person_keys (person) WHERE wrapped IS NOT NULL;
CREATE INDEX IF NOT EXISTS person_keys_person ON {schema}.person_keys (person);
"""

# with the key of the same person that was destroyed last
_KEYS: Final = """
SELECT key.key_id, key.person, key.wrapped, key.wrapped_by, last.key_id, last.created, last.erased
FROM {schema}.person_keys AS key LEFT JOIN LATERAL (
    SELECT key_id, created, erased FROM {schema}.person_keys
    WHERE person = key.person AND erasure IS NOT NULL ORDER BY erasure DESC LIMIT 1
) AS last ON true
"""
OF_PERSON: Final = f"{_KEYS} WHERE key.person = %s AND key.wrapped IS NOT NULL"

# another process may add one at the same time: the first one counts
ADD: Final = """
INSERT INTO {schema}.person_keys (key_id, person, wrapped, wrapped_by)
VALUES (%(key_id)s, %(person)s, %(wrapped)s, %(master)s)
ON CONFLICT (person) WHERE wrapped IS NOT NULL DO NOTHING
"""

# only for a person who never had one
ADD_FIRST: Final = """
INSERT INTO {schema}.person_keys (key_id, person, wrapped, wrapped_by)
SELECT %(key_id)s, %(person)s, %(wrapped)s, %(master)s
WHERE NOT EXISTS (SELECT FROM {schema}.person_keys WHERE person = %(person)s)
ON CONFLICT (person) WHERE wrapped IS NOT NULL DO NOTHING
"""

FIND: Final = f"{_KEYS} WHERE key.key_id = ANY(%s)"

FACTS: Final = "SELECT key_id, created, erased FROM {schema}.person_keys WHERE person = %s ORDER BY created, key_id"

# one erasure at a time, so that numbers are committed in their order, and no reader of erasures misses one
LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

ERASE: Final = """
UPDATE {schema}.person_keys
SET wrapped = NULL, wrapped_by = NULL, erased = now(),
    erasure = (
        SELECT greatest(coalesce(max(erasure), 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        FROM {schema}.person_keys
    )
WHERE person = %s AND wrapped IS NOT NULL
RETURNING key_id, created, erased
"""

ERASURES: Final = """
SELECT (SELECT coalesce(max(erasure), 0) FROM {schema}.person_keys),
       (SELECT coalesce(array_agg(key_id), '{{}}') FROM {schema}.person_keys WHERE erasure > %s)
"""

WRAPPED_BY_OTHERS: Final = """
SELECT key_id, person, wrapped, wrapped_by FROM {schema}.person_keys
WHERE key_id > %s AND wrapped IS NOT NULL AND wrapped_by <> %s ORDER BY key_id LIMIT %s FOR UPDATE
"""
UNLIMITED: Final = "SET LOCAL statement_timeout = 0"

REWRAP: Final = "UPDATE {schema}.person_keys SET wrapped = %s, wrapped_by = %s WHERE key_id = %s"
