"""The shop's customers become aggregates: from SQL to events, once each, whatever is killed in between."""

from __future__ import annotations

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from headwater.commands.receipt import Receipt
from headwater.compose.samples.shop_database import fill
from headwater.compose.stack import Stack
from headwater.eventlog.capturing.changes import Operation
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.naming import COMMAND_PREFIX
from headwater.eventlog.capturing.operating import Operator
from headwater.eventlog.envelope import Envelope, decode
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, RECEIPTS
from headwater.samples.shop.domain.customer import Details
from headwater.samples.shop.processes import customer_import
from headwater.samples.shop.source import Customer, shop
from tests.integration.commands.handler_process import output, start_handler
from tests.integration.sources.captured import Connector, Topic, captured
from tests.integration.sources.clients import clients, more_of_each
from tests.integration.sources.watching import watching
from tests.support.receipt_keys import short_key
from tests.support.seeds import seed_of, some_of
from tests.support.waiting import eventually

WHOLE_OLD_ROWS = "ALTER TABLE products REPLICA IDENTITY FULL"
CUSTOMERS = 60
SQL = "SELECT id::text, name, email, is_business, (credit_limit * 100)::bigint AS credit_limit_cents FROM customers"

CHANGE = "UPDATE orders SET note = %s WHERE id = (SELECT min(id) FROM orders)"
EMIT = f"SELECT pg_logical_emit_message(true, '{COMMAND_PREFIX}', %s)"
WRITTEN = 30
"""Commands in the outbox; every third transaction is rolled back."""

Histories = Mapping[str, list[Details | None]]
"""By customer, what is known of them, one state after another; None after a removal."""


class Handlers:
    """One handler process of the domain `shop`, which can be killed."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self._process = start_handler(settings, "shop")

    def kill(self) -> None:
        """Kill it, and start another one."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = start_handler(self.settings, "shop")

    def stop(self) -> None:
        """Stop it, and check that it stops well."""
        self._process.terminate()
        assert self._process.wait(240) == 0, output(self.settings)


@dataclass
class Imported:
    """A captured shop, and the handler that imports its customers."""

    connector: Connector
    handlers: Handlers
    log: KafkaLog
    topic: Topic

    def events(self, aggregate: str = "customer") -> dict[str, list[Envelope]]:
        """The events of each aggregate of a kind, by its id; a version that is missing or doubled fails."""
        found: dict[str, list[Envelope]] = defaultdict(list)
        for partition in range(self.log.partitions):
            for record in self.log.read(EVENTS, partition, 0):
                envelope = decode(record.value)
                if envelope.stream.startswith(f"{aggregate}/"):
                    found[envelope.stream.removeprefix(f"{aggregate}/")].append(envelope)
        for stream, envelopes in found.items():
            assert [envelope.sequence for envelope in envelopes] == list(range(1, len(envelopes) + 1)), stream
        return found

    def histories(self) -> Histories:
        """What the events say."""
        return {key: [_of_event(event) for event in events] for key, events in self.events().items()}

    def expected(self) -> Histories:
        """What the records of Debezium say, without those that repeat what is known."""
        found: dict[str, list[Details | None]] = defaultdict(list)
        for record in self.topic.read():
            told = None if record.change.row is None else _of_row(record.change.row)
            history = found[record.change.key]
            if told != (history[-1] if history else None):
                history.append(told)
        return found

    def rows(self) -> dict[str, Details]:
        """What SQL says."""
        with self.connector.connect(row_factory=psycopg.rows.dict_row) as connection:
            return {row.pop("id"): Details(**row) for row in connection.execute(SQL).fetchall()}

    def receipts(self, ids: str) -> list[Receipt]:
        """The receipts of commands whose ids begin with this."""
        found = (partition for p in range(self.log.partitions) for partition in self.log.read(RECEIPTS, p, 0))
        return [Receipt.from_json(record.value or b"") for record in found if short_key(record.key).startswith(ids)]

    def answered(self) -> Counter[str]:
        """How often each command of the process was answered, by its id."""
        return Counter(receipt.command_id for receipt in self.receipts(f"{customer_import.name}:"))

    def changes(self) -> int:
        """How many changes there are; a tombstone is none."""
        return sum(record.change.operation is not Operation.TOMBSTONE for record in self.topic.read())

    def wait_settled(self) -> None:
        """Return once every change has its command, and check that nothing of it was lost or done twice."""
        self.connector.wait_equal(self.topic)
        eventually(lambda: len(self.answered()) >= self.changes(), "every change was decided", every_s=0.5)
        assert set(self.answered().values()) == {1}
        assert self.histories() == self.expected()
        known = {key: history[-1] for key, history in self.histories().items()}
        assert {key: details for key, details in known.items() if details} == self.rows()
        assert list(self.log.read(DEAD_LETTERS, 0, 0)) == []


def _of_event(envelope: Envelope) -> Details | None:
    data: Mapping[str, Any] = envelope.data
    return (
        None
        if envelope.type == "customer.removed"
        else Details(**{field: data[field] for field in Details.model_fields})
    )


def _of_row(row: Mapping[str, Any]) -> Details:
    limit = row["credit_limit"]
    cents = None if limit is None else int(Decimal(limit) * 100)
    return Details(name=row["name"], email=row["email"], is_business=row["is_business"], credit_limit_cents=cents)


@pytest.fixture(scope="module")
def imported(servers: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Imported]:
    with captured(servers, shop, [WHOLE_OLD_ROWS]) as connector:
        with connector.connect() as connection:
            fill(connection, seed_of(1), CUSTOMERS, products=20)
        settings = replace(connector.log, state=tmp_path_factory.mktemp("state"), modules=("shop",))
        handlers = Handlers(settings)
        # a worker that is killed after a snapshot gets its signal again, and Debezium may fail at that
        watch = watching({**connector.variables, "HEADWATER_MODULES": "shop"}, settings.state / "watch.log")
        try:
            with closing(KafkaLog(settings)) as log:
                connector.put()
                with watch:
                    yield Imported(connector, handlers, log, connector.topic(Customer))
        finally:
            handlers.stop()


@pytest.mark.complete
@pytest.mark.soak
def test_every_row_is_a_customer_with_its_history_though_everything_is_killed(
    servers: Stack, imported: Imported
) -> None:
    eventually(lambda: len(imported.events()) >= CUSTOMERS, "the rows of the snapshot are customers")
    with clients(imported.connector) as running:
        for part in some_of(("connect", "kafka"), 1, 2):
            imported.handlers.kill()
            more_of_each(running)
            servers[part].kill()
            more_of_each(running)
            servers[part].wait_healthy()
        imported.handlers.kill()
    imported.connector.wait_running()
    imported.wait_settled()
    kinds = Counter(event.type for events in imported.events().values() for event in events)
    assert kinds["customer.registered"] >= CUSTOMERS
    assert min(kinds["customer.details_changed"], kinds["customer.removed"]) > 0


@pytest.mark.complete
def test_rows_that_are_read_again_change_nothing(imported: Imported) -> None:
    before, changes = imported.events(), imported.changes()
    connector = imported.connector
    with Operator(shop, connector.settings, KafkaConnect(connector.settings.connect), print) as operator:
        operator.snapshot([Customer])
    eventually(lambda: imported.changes() >= changes + len(imported.rows()), "all rows are read again")
    imported.wait_settled()
    assert imported.events() == before


def _outcomes(imported: Imported) -> dict[str, str]:
    """By the id of a command. One that the connector sent again, after it was killed, has the same receipt again."""
    first = dict[str, Receipt]()
    for receipt in imported.receipts("shop@"):
        assert first.setdefault(receipt.command_id, receipt) == receipt
    return {command_id: receipt.outcome for command_id, receipt in first.items()}


def test_commands_in_the_outbox_are_sent_once_if_their_transaction_is_committed(
    servers: Stack, imported: Imported
) -> None:
    def receive(name: str) -> str:
        body = {"payment_id": name, "customer_id": "1", "amount_cents": 100}
        return json.dumps({"type": "payment.receive", "body": body})

    eventually(lambda: len(imported.events()) >= CUSTOMERS, "messages are captured: the snapshot is through")
    with imported.connector.connect() as connection:
        for number in range(WRITTEN):
            with connection.transaction():
                connection.execute(CHANGE, (str(number),))
                connection.execute(EMIT, (receive(str(number)),))
                if number % 3 == 0:
                    raise psycopg.Rollback
            if number == WRITTEN // 3:
                imported.handlers.kill()
            if number == 2 * WRITTEN // 3:
                servers["connect"].kill()
        for written in ("no command", receive("1"), receive("last")):
            connection.execute(EMIT, (written,))
    imported.connector.wait_running()
    committed = [str(number) for number in range(WRITTEN) if number % 3]
    decided = len(committed) + 2
    eventually(lambda: len(_outcomes(imported)) >= decided, "commands of all partitions are decided")
    payments = imported.events("payment")
    assert payments.keys() == {*committed, "last"}
    assert {len(events) for events in payments.values()} == {1}
    assert Counter(_outcomes(imported).values()) == {"accepted": len(committed) + 1, "rejected": 1}
    (letter,) = imported.log.read(DEAD_LETTERS, 0, 0)
    assert letter.key.startswith("cdc.shop.message/0/")
    assert letter.key.endswith("/outbox")
