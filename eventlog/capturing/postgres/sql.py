"""The SQL that looks at a captured PostgreSQL database."""

from __future__ import annotations

from typing import Final

HEARTBEAT: Final = "SELECT pg_logical_emit_message(true, 'headwater', extract(epoch FROM now())::text)"
"""A message in the write-ahead log, with the time of the database: it changes no table.

It is a transaction of its own, because Debezium 3.6 fails in a read-only incremental snapshot if the last thing in the
log has no transaction.
"""

SERVER: Final = """
-- the server, and what this role may do
SELECT current_setting('server_version_num')::int / 10000 AS version,
       current_setting('wal_level') AS wal_level,
       pg_is_in_recovery() AS standby,
       current_user::text AS role,
       current_database()::text AS database,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       current_setting('max_replication_slots')::int AS max_slots,
       (SELECT count(*) FROM pg_replication_slots) AS slots,
       r.rolsuper OR r.rolreplication OR EXISTS (
           SELECT FROM pg_roles hosted WHERE hosted.rolname IN ('rds_replication', 'rds_superuser')
           AND pg_has_role(current_user, hosted.oid, 'member')
       ) AS may_replicate
FROM pg_roles r WHERE r.rolname = current_user
"""

TABLE: Final = """
-- a table; no row if there is none of this name. Columns that an index INCLUDEs are no part of its key, and a
-- deferrable primary key identifies no rows in the log
SELECT c.oid,
       c.relkind::text AS kind,
       c.relreplident::text AS identity,
       has_schema_privilege(n.oid, 'USAGE') AS may_use,
       pg_get_userbyid(n.nspowner) AS schema_owner,
       has_table_privilege(c.oid, 'SELECT') AS may_select,
       row_security_active(c.oid) AS hides_rows,
       CASE WHEN c.relkind = 'r' THEN (SELECT array_agg(i.inhrelid::regclass::text ORDER BY 1) FROM pg_inherits i
           WHERE i.inhparent = c.oid) END AS heirs,
       pg_has_role(c.relowner, 'USAGE') AS owns,
       pg_get_userbyid(c.relowner) AS owner,
       coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a
           ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
           WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate), '{}') AS primary_key,
       EXISTS (SELECT FROM pg_index i
           WHERE i.indrelid = c.oid AND i.indisprimary AND NOT i.indimmediate) AS has_deferrable_key,
       coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a
           ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
           WHERE i.indrelid = c.oid AND i.indisreplident), '{}') AS identity_key,
       coalesce((SELECT bool_or(p.reltoastrelid <> 0) FROM pg_class p
           WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid)), false) AS stores_apart,
       coalesce((SELECT array_agg(format('%%I.%%I', p.relnamespace::regnamespace, p.relname) ORDER BY p.oid)
           FROM pg_class p WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid)
           AND p.relkind = 'r' AND p.relreplident <> 'f'), '{}') AS without_old_rows,
       coalesce((SELECT array_agg(format('%%I.%%I', p.relnamespace::regnamespace, p.relname) ORDER BY p.oid)
           FROM pg_class p WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid)
           AND (p.relpersistence <> 'p' OR p.relkind = 'f')), '{}') AS unlogged,
       coalesce((SELECT array_agg(DISTINCT a.attname::text) FROM pg_class p JOIN pg_attribute a ON a.attrelid = p.oid
           WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid)
           AND p.relkind = 'r' AND p.relreplident = 'f' AND a.attgenerated = 'v'), '{}') AS virtual_in_old_rows
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
"""

COLUMNS: Final = """
-- its columns; a domain counts as the type under it
WITH typed AS (
    SELECT a.attname::text AS name,
           NOT (a.attnotnull OR t.typnotnull) AS nullable,
           format_type(a.atttypid, a.atttypmod) AS shown,
           CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END AS type,
           t.typstorage <> 'p' AS apart,
           quote_ident(a.attname) = a.attname AND (t.typnamespace = 'pg_catalog'::regnamespace
               OR quote_ident(t.typname) = t.typname AND pg_type_is_visible(t.oid)) AS unquoted,
           a.attgenerated <> '' AS generated,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
           a.attnum
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
)
SELECT typed.name, t.typname::text AS type, typed.shown, typed.nullable, typed.apart, typed.unquoted, typed.generated,
       CASE WHEN t.typcategory = 'A' THEN item.typname::text ELSE '' END AS item,
       'numeric' IN (t.typname, item.typname) AND modifier > 0 AND (modifier - 4) & 1024 <> 0 AS negative_scale,
       coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e
           WHERE e.enumtypid IN (t.oid, item.oid)), '{}') AS labels
FROM typed JOIN pg_type t ON t.oid = typed.type LEFT JOIN pg_type item ON item.oid = t.typelem
ORDER BY typed.attnum
"""

UNKEYED: Final = """
-- partitions whose updates and deletes lack the key: PostgreSQL may even refuse them once they are captured
SELECT format('%%I.%%I', p.relnamespace::regnamespace, p.relname) AS partition
FROM pg_class p
WHERE p.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s)) AND p.relkind = 'r' AND p.relreplident <> 'f'
AND NOT %(key)s::text[] <@ coalesce((SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = p.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
    WHERE i.indrelid = p.oid AND i.indimmediate
    AND CASE p.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END), '{}')
ORDER BY p.oid
"""

UNIQUE: Final = """
-- indexes that refuse a second row with a key at once: not at the end of a statement or a transaction
SELECT FROM pg_index i
WHERE i.indrelid = %(oid)s AND i.indisunique AND i.indimmediate AND i.indisvalid
AND i.indpred IS NULL AND i.indexprs IS NULL
AND (SELECT array_agg(a.attname::text) FROM pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) <@ %(key)s::text[]
"""

SAME_BUT_FOR_CASE: Final = """
-- tables whose names differ from a declared one by their case only: Debezium takes them for the same table
SELECT n.nspname || '.' || c.relname AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND lower(n.nspname || '.' || c.relname) = lower(%(table)s)
AND n.nspname || '.' || c.relname <> %(table)s
ORDER BY 1
"""

UNREADABLE_TYPES: Final = """
-- types of any table, captured or not, at which Debezium stops when it starts: it reads all types of the database
SELECT format_type(t.oid, NULL) AS name, 'an enum without values' AS what
FROM pg_type t WHERE t.typtype = 'e' AND NOT EXISTS (SELECT FROM pg_enum e WHERE e.enumtypid = t.oid)
UNION ALL
SELECT format_type(t.oid, NULL), 'a domain over an enum'
FROM pg_type t JOIN pg_type under ON under.oid = t.typbasetype WHERE t.typtype = 'd' AND under.typtype = 'e'
ORDER BY 1
"""

SLOT: Final = """
-- the replication slot, and how far it is behind
SELECT plugin::text, database::text, active, active_pid, wal_status,
       to_jsonb(s) ->> 'invalidation_reason' AS invalidation,
       pg_wal_lsn_diff(here.lsn, confirmed_flush_lsn)::bigint AS lag_bytes,
       pg_wal_lsn_diff(here.lsn, restart_lsn)::bigint AS retained_bytes,
       safe_wal_size AS safe_bytes
FROM pg_replication_slots s,
    (SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END) here(lsn)
WHERE slot_name = %(slot)s
"""

WAL_END: Final = """
-- where the write-ahead log ends, in bytes; NULL on a standby
SELECT pg_wal_lsn_diff(CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END, '0/0')::bigint AS lsn
"""

IDENTIFIER: Final = """
-- which server this is; the timeline of its log is in the names of its files
SELECT system_identifier::text AS identifier, current_setting('server_version_num')::int / 10000 AS version,
       CASE WHEN pg_is_in_recovery() THEN 0
           ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline,
       current_database() AS database
FROM pg_control_system()
"""

STANDBYS: Final = """
-- the slots of standbys, and those that logical slots wait for, which PostgreSQL has from version 17 on; and whether
-- commits wait for standbys, and are not visible meanwhile
SELECT current_setting('server_version_num')::int / 10000 AS version,
       current_setting('synchronous_standby_names') <> '' AS commits_wait,
       string_to_array(replace(current_setting('synchronized_standby_slots', true), ' ', ''), ',') AS awaited,
       (SELECT jsonb_object_agg(slot_name, active) FROM pg_replication_slots
           WHERE slot_type = 'physical' AND NOT temporary) AS physical
"""

READ_APART: Final = """
-- tables whose updates lack long values that they leave as they were, so that the connector reads them from the table
SELECT format('%%I.%%I', p.relnamespace::regnamespace, p.relname) AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = c.oid OR p.oid IN (SELECT relid FROM pg_partition_tree(c.oid))
WHERE n.nspname = %(schema)s AND c.relname = %(name)s
AND p.relkind = 'r' AND p.relreplident <> 'f' AND p.reltoastrelid <> 0
AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p.oid AND a.attname = ANY (%(columns)s)
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage <> 'p')
ORDER BY p.oid
"""

WAL_LIMIT: Final = """
-- how much write-ahead log slots may keep, in bytes; -1 is without a limit
SELECT setting::bigint * 1024 * 1024 FROM pg_settings WHERE name = 'max_slot_wal_keep_size' AND setting <> '-1'
"""

PUBLICATION: Final = """
-- what the publication has; no row if there is none of this name
SELECT p.puballtables AS everything,
       p.pubinsert AND p.pubupdate AND p.pubdelete AS complete,
       to_jsonb(p) ->> 'pubgencols' IS NOT DISTINCT FROM 'n' AND EXISTS (
           SELECT FROM pg_publication_rel r
           CROSS JOIN LATERAL (SELECT r.prrelid UNION SELECT relid FROM pg_partition_tree(r.prrelid)) AS part(relid)
           JOIN pg_class c ON c.oid = part.relid JOIN pg_attribute a ON a.attrelid = c.oid
           WHERE r.prpubid = p.oid AND c.relreplident = 'f' AND a.attgenerated = 's'
       ) AS refuses_updates,
       pg_has_role(p.pubowner, 'USAGE') AS owns,
       coalesce((SELECT array_agg(t.schemaname || '.' || t.tablename) FROM pg_publication_tables t
           WHERE t.pubname = p.pubname AND to_jsonb(t) ->> 'rowfilter' IS NOT NULL), '{}') AS filtered,
       coalesce((SELECT jsonb_object_agg(t.schemaname || '.' || t.tablename, to_jsonb(t) -> 'attnames')
           FROM pg_publication_tables t
           WHERE t.pubname = p.pubname AND to_jsonb(t) -> 'attnames' IS NOT NULL), '{}') AS columns,
       coalesce((SELECT array_agg(t.schemaname || '.' || t.tablename ORDER BY 1) FROM pg_publication_tables t
           WHERE t.pubname = p.pubname), '{}') AS tables
FROM pg_publication p WHERE p.pubname = %(name)s
"""

LAYOUT: Final = """
-- what of a table differs once its rows have changed without a change in the log; no row if there is none of this name
SELECT current_setting('server_version_num')::int / 10000 AS version,
       c.oid::bigint AS "table",
       (SELECT jsonb_object_agg(p.oid, jsonb_build_object(
               'name', format('%%I.%%I', p.relnamespace::regnamespace, p.relname),
               'file', p.relfilenode::bigint,
               'attached', CASE WHEN p.oid <> c.oid THEN i.xmin::text ELSE '' END,
               'parent', CASE WHEN p.oid <> c.oid THEN i.inhparent::text ELSE '' END,
               'is_empty', p.relkind = 'r' AND coalesce(pg_relation_size(p.oid), 0) = 0,
               -- CREATE TABLE … PARTITION OF; from version 18 on, a NOT NULL makes every other way longer
               'is_created', coalesce(i.xmin = a.xmin AND i.cmin::text::bigint - a.cmin::text::bigint = 2
                   AND current_setting('server_version_num')::int >= 180000, false)))
           FROM pg_class p
           LEFT JOIN pg_inherits i ON i.inhrelid = p.oid
           LEFT JOIN pg_attribute a ON a.attrelid = p.oid AND a.attname = 'tableoid'
           WHERE p.oid IN (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid
               UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = c.oid)) AS parts,
       coalesce((SELECT jsonb_object_agg(a.attname, jsonb_build_array(a.attnum, a.atttypid::bigint))
           FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY (%(columns)s) AND NOT a.attisdropped
           AND a.attnum > 0), '{}') AS columns,
       coalesce((SELECT jsonb_object_agg(e.oid, e.enumlabel)
           FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_enum e ON e.enumtypid IN (t.oid, t.typelem)
           WHERE a.attrelid = c.oid AND a.attname = ANY (%(columns)s) AND NOT a.attisdropped), '{}') AS labels,
       coalesce((SELECT concat_ws('/', b.oid, b.xmin, r.oid)
           FROM pg_publication b LEFT JOIN pg_publication_rel r ON r.prpubid = b.oid AND r.prrelid = c.oid
           WHERE b.pubname = %(publication)s), '') AS published,
       -- the type of its rows has its name; GRANT, ANALYZE and most forms of ALTER TABLE leave it alone
       (SELECT t.xmin::text FROM pg_type t WHERE t.oid = c.reltype) AS named
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s AND c.relkind IN ('r', 'p')
"""

HOLD: Final = """
-- one command at a time works with a connector that is stopped: the lock ends with its connection. If the machine of
-- the command is gone, the server finds that out within a minute
SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0)) AS held, set_config('idle_session_timeout', '0', false),
       set_config('tcp_keepalives_idle', '20', false), set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '4', false)
"""
