"""The roles of PostgreSQL: who owns the schema of a deployment, who writes it, and who reads it."""

from __future__ import annotations

from typing import Final

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from headwater.eventlog.access import Program, account
from headwater.projections.settings import StoreSettings

OWNER: Final = "owner"
"""End of the name of the role that owns the tables. Nobody logs in as it; it keeps one owner for the tables that the
read side and the operator make, because only the owner of a table may drop it."""
WRITERS: Final = (Program.PROJECTIONS, Program.OPERATOR)
READER: Final = Program.API

GRANTS: Final = """\
-- Run it with psql as a superuser, in the database {shown}.
-- Then give each role a password: \\password {api}
SELECT format('CREATE ROLE %I %s', name, kind) FROM (VALUES
    ('{owner}', 'NOLOGIN'), ('{projections}', 'LOGIN'), ('{operator}', 'LOGIN'), ('{api}', 'LOGIN')
) AS wanted(name, kind) WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \\gexec
GRANT "{owner}" TO "{projections}", "{operator}";
ALTER ROLE "{projections}" IN DATABASE {database} SET role = '{owner}';
ALTER ROLE "{operator}" IN DATABASE {database} SET role = '{owner}';
GRANT CONNECT ON DATABASE {database} TO "{projections}", "{operator}", "{api}";
CREATE SCHEMA IF NOT EXISTS "{schema}";
-- what another role has made before
SELECT format('ALTER TABLE %s OWNER TO %I', made.oid::regclass, '{owner}')
FROM pg_class AS made JOIN pg_namespace ON pg_namespace.oid = made.relnamespace
WHERE nspname = '{schema}' AND nspowner <> '{owner}'::regrole
  AND made.relowner = nspowner AND made.relkind IN ('r', 'v')
\\gexec
ALTER SCHEMA "{schema}" OWNER TO "{owner}";
GRANT USAGE ON SCHEMA "{schema}" TO "{api}";
GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{api}";
ALTER DEFAULT PRIVILEGES FOR ROLE "{owner}" IN SCHEMA "{schema}" GRANT SELECT ON TABLES TO "{api}";
"""
"""Statements for psql, which may be repeated."""


def grants(settings: StoreSettings) -> str:
    """The roles, as a script for psql."""
    environment, address = settings.environment, conninfo_to_dict(settings.postgres)
    names = {program.value: account(environment, program) for program in (*WRITERS, READER)}
    database = sql.Identifier(str(address.get("dbname") or address.get("user") or "")).as_string()
    shown = " ".join(database.splitlines())  # a line break would end the comment
    return GRANTS.format(owner=f"{environment}_{OWNER}", schema=environment, database=database, shown=shown, **names)
