"""The SQL that looks at a captured MariaDB or MySQL server."""

from __future__ import annotations

from typing import Final

SERVER: Final = """
-- the server, and who asks
SELECT @@version AS version, @@server_id AS server_id, CURRENT_USER() AS account, @@log_bin AS log_bin,
       @@global.binlog_format AS binlog_format, @@global.binlog_row_image AS binlog_row_image
"""

VARIABLES: Final = """
-- settings that only one of both servers has
SHOW GLOBAL VARIABLES WHERE Variable_name IN
    ('gtid_mode', 'enforce_gtid_consistency', 'log_bin_compress', 'binlog_row_value_options', 'binlog_legacy_event_pos')
"""

TABLE: Final = """
-- a table; no row if there is none of this name that the account may see
SELECT TABLE_TYPE AS kind, CREATE_TIME AS created FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %(schema)s AND BINARY TABLE_NAME = %(name)s
"""

COLUMNS: Final = """
-- its columns
SELECT COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS shown, IS_NULLABLE = 'YES' AS nullable,
       EXTRA LIKE '%%VIRTUAL%%' AS is_virtual
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %(schema)s AND BINARY TABLE_NAME = %(name)s ORDER BY ORDINAL_POSITION
"""

UNREADABLE_COLUMNS: Final = """
-- columns of any table of these databases, captured or not, at whose definition Debezium's connector for MariaDB stops
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name, COLUMN_NAME AS `column`, DATA_TYPE AS type
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA IN %(databases)s
AND (DATA_TYPE = 'inet6' OR COLUMN_TYPE LIKE '%%*/' AND COLUMN_TYPE LIKE '%% COMPRESSED%%')
ORDER BY 1, ORDINAL_POSITION
"""

TABLES: Final = """
-- the tables of these databases
SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS name FROM information_schema.TABLES
WHERE TABLE_SCHEMA IN %(databases)s AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1
"""

_INNODB_PARTS: Final = """
-- the numbers of a table's partitions, by the end of their names, or that of the table itself
SELECT TABLE_ID AS id, SUBSTRING(NAME, CHAR_LENGTH(SUBSTRING_INDEX(NAME, '#', 1)) + 1) AS part
FROM information_schema.{view}
WHERE BINARY SUBSTRING_INDEX(NAME, '#', 1) = CONCAT(%(schema)s, '/', %(name)s)
ORDER BY 2
"""
INNODB_PARTS: Final = {
    "mariadb": _INNODB_PARTS.format(view="INNODB_SYS_TABLES"),
    "mysql": _INNODB_PARTS.format(view="INNODB_TABLES"),
}
"""By the `engine` of a Source."""

VERSION: Final = "SELECT @@version AS version"
GRANTS: Final = "SHOW GRANTS"
LOGS: Final = "SHOW BINARY LOGS"
STATUS: Final = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""Where the log ends: MySQL 8.4 has another word for it."""

HOLD: Final = """
-- one command at a time works with a connector that is stopped: the lock ends with its connection. If the machine of
-- the command is gone, the server finds that out within a minute: it is asked more often than that, see KEEP_S
SELECT GET_LOCK(CONCAT('headwater ', MD5(%(name)s)), 0) AS held
"""
HOLD_SESSION: Final = "SET SESSION wait_timeout = {seconds}"
"""How long the server keeps the connection with the lock, and with it the lock, if it is asked nothing."""
