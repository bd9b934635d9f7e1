"""The store of keys in PostgreSQL, in a schema of its own, and the vault over it that the environment describes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg_pool import ConnectionPool, PoolTimeout

from headwater.eventlog.errors import KeysUnavailable, SettingError, UnknownKey
from headwater.eventlog.personal import sql as statements
from headwater.eventlog.personal.identity import KeyRecords, StoreIdentity, new_key_id, new_store_id
from headwater.eventlog.personal.master_keys import MasterKeys
from headwater.eventlog.personal.ports import KEYS_VARIABLE, NEEDS, SECRET_BYTES, Erasures, KeyFacts, PersonKey
from headwater.eventlog.programs.variables import secret

ANSWER_S: Final = 3
"""How long it may take to connect, and to answer a statement."""
MAX_CONNECTIONS: Final = 4
"""Of one process."""
REWRAPPED: Final = 500
"""Keys of one transaction of a rotation."""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresKeys:
    """See KeyStore. Keys are stored wrapped; the database never has a master key or a value."""

    def __init__(
        self, url: str, environment: str, masters: MasterKeys, records: KeyRecords | None = None, *, pins: bool = True
    ) -> None:
        """url: of a database whose role is used by nothing else. environment: the schema is `<environment>_keys`.

        records: what the log says of the store. pins: whether it is compared with that.
        """
        self._identity, self._store = StoreIdentity(records, pins=pins), ""
        self._masters = masters
        self._schema = f"{environment}_keys"
        options = {"connect_timeout": ANSWER_S, "options": f"-c statement_timeout={ANSWER_S}s"}
        options |= {"tcp_user_timeout": ANSWER_S * 1000, "application_name": "headwater-keys"}
        self._pool = ConnectionPool(
            url, min_size=0, max_size=MAX_CONNECTIONS, kwargs=options, timeout=ANSWER_S, reconnect_timeout=ANSWER_S,
            open=False, check=ConnectionPool.check_connection, name="keys",
        )  # fmt: skip
        # it repeats every attempt to connect, with the address; the error of the caller says it once
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
        self._pool.open(wait=False)
        self._is_prepared = False

    def key_of(self, person: str) -> PersonKey:
        if (key := self._living(person, statements.ADD)) is None:
            raise KeysUnavailable("the key of a person was destroyed at the moment in which it was made")
        return key

    def key_unless_erased(self, person: str) -> PersonKey | None:
        return self._living(person, statements.ADD_FIRST)

    def find(self, key_ids: Collection[str]) -> Mapping[str, PersonKey | UnknownKey | None]:
        with self._connected() as connection:
            rows = connection.execute(self._sql(statements.FIND), (list(key_ids),)).fetchall()
        keys: dict[str, PersonKey | UnknownKey | None] = {}
        for row in rows:
            try:
                keys[row[0]] = None if row[2] is None else self._key(row)
            except KeysUnavailable as error:  # others in the same request are of other persons
                keys[row[0]] = UnknownKey(row[0], error.reason)
        return {**keys, **self._identity.destroyed([id_ for id_ in key_ids if id_ not in keys])}

    def keys_of(self, person: str) -> Sequence[KeyFacts]:
        with self._connected() as connection:
            rows = connection.execute(self._sql(statements.FACTS), (person,)).fetchall()
        return [KeyFacts(*row) for row in rows]

    def erase(self, person: str) -> Sequence[KeyFacts]:
        with self._connected() as connection:
            connection.execute(statements.LOCK, (self._schema,))
            rows = connection.execute(self._sql(statements.ERASE), (person,)).fetchall()
        return [KeyFacts(*row) for row in rows]

    def erasures(self, after: int) -> Erasures:
        with self._connected() as connection:
            row = connection.execute(self._sql(statements.ERASURES), (after,)).fetchone()
        number, key_ids = row or (0, [])
        return Erasures(number, key_ids)

    def rewrap(self) -> int:
        """Wrap all keys that other master keys have wrapped by the first one; returns their number."""
        done, last = 0, ""
        while True:
            with self._connected() as connection:
                connection.execute(statements.UNLIMITED)  # it may look at all keys to find that none is left
                others = (last, self._masters.current, REWRAPPED)
                rows = connection.execute(self._sql(statements.WRAPPED_BY_OTHERS), others).fetchall()
                for row in rows:
                    key = self._key(row)
                    wrapped = self._masters.wrap(key.key_id, key.person, key.secret)
                    changed = (wrapped, self._masters.current, key.key_id)
                    connection.execute(self._sql(statements.REWRAP), changed)
            done, last = done + len(rows), rows[-1][0] if rows else last
            if len(rows) < REWRAPPED:
                return done

    def adopt(self) -> str:
        self._is_prepared, self._store = True, new_store_id()
        with self._connected() as connection:
            self._create(connection)
            connection.execute(self._sql(statements.RENAME_STORE), (self._store,))
        self._identity.adopt(self._store)
        return self._store

    def close(self) -> None:
        self._pool.close()

    def _living(self, person: str, add: str) -> PersonKey | None:
        """The living key of a person; if there is none, after this statement."""
        with self._connected() as connection:
            if (row := connection.execute(self._sql(statements.OF_PERSON), (person,)).fetchone()) is None:
                key_id, secret = new_key_id(self._store), secrets.token_bytes(SECRET_BYTES)
                wrapped = self._masters.wrap(key_id, person, secret)
                added = {"key_id": key_id, "person": person, "wrapped": wrapped, "master": self._masters.current}
                connection.execute(self._sql(add), added)
                row = connection.execute(self._sql(statements.OF_PERSON), (person,)).fetchone()
        return None if row is None else self._key(row)

    def _key(self, row: Sequence[Any]) -> PersonKey:
        key_id, person, wrapped, master, *last = row
        earlier = KeyFacts(*last) if any(last) else None
        return PersonKey(key_id, person, self._masters.unwrap(master, key_id, person, wrapped), earlier)

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self._schema))

    def _prepare(self, connection: Connection) -> None:
        """Create the tables, unless they are there: then the role needs no right to create anything."""
        exists = connection.execute(statements.EXISTS, (f'"{self._schema}".key_store',)).fetchone()
        store_id = self._store_id(connection) if exists is not None and exists[0] else None
        self._store = self._identity.accept(store_id, lambda: self._create(connection))
        self._is_prepared = True

    def _create(self, connection: Connection) -> str:
        """The id of the store, which is made if it is not there."""
        connection.execute(statements.LOCK, (self._schema,))
        connection.execute(self._sql(statements.CREATE))
        connection.execute(self._sql(statements.ADD_STORE), (new_store_id(),))
        store = self._store_id(connection)
        connection.commit()
        return store or ""

    def _store_id(self, connection: Connection) -> str | None:
        row = connection.execute(self._sql(statements.STORE)).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection with a transaction; raises KeysUnavailable."""
        try:
            with self._pool.connection() as connection:
                if not self._is_prepared:
                    self._prepare(connection)
                yield connection
        except PoolTimeout as error:
            raise KeysUnavailable(f"no connection within {ANSWER_S} s") from error
        except psycopg.Error as error:
            raise KeysUnavailable(" ".join(str(error).split())) from error


def open_keys(
    env: Mapping[str, str], environment: str, records: KeyRecords | None = None, *, pins: bool = True
) -> PostgresKeys:
    """The store of keys at HEADWATER_KEYS, to which nothing connects before it is used; raises SettingError."""
    url = secret(env, KEYS_VARIABLE)
    if not url:
        raise SettingError(KEYS_VARIABLE, "", NEEDS)
    if not url.startswith(("postgresql://", "postgres://")):
        raise SettingError(KEYS_VARIABLE, "…", NEEDS)
    return PostgresKeys(url, environment, MasterKeys.from_environment(env), records, pins=pins)
