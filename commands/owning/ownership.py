"""Owning partitions: join a group, and for each assigned partition fence, restore, serve, and give up.

This module does not know what is done with a partition: that is a PartitionTask, for example for commands.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from typing import Final, Protocol

from headwater.commands.errors import LocalStateError
from headwater.commands.owning.resume_offset import commit_position, resume_offset
from headwater.commands.owning.running_code import SlowCode, running_in
from headwater.eventlog.errors import EventLogError, Fenced, RecordsLost
from headwater.eventlog.ports import EventLog, PartitionWriter, Record, Role
from headwater.eventlog.programs.logs import about
from headwater.eventlog.programs.metrics import counter, gauge, seconds
from headwater.eventlog.programs.stopping import SIGNAL_S
from headwater.eventlog.rounds import until_round_s

BATCH_RECORDS = 2_000
POLL_S = 0.2
"""How long a worker may take to notice a stop if no record comes."""
MEMBER_POLL_S = 0.2
"""How long a failed worker or a stop signal may go unnoticed; a rebalance interrupts the poll."""
FENCED_PAUSE_S = 2.0
"""Until a partition whose worker was fenced is taken over again, if it is still assigned: long enough for a group to
take it from an owner that lost it unnoticed.
"""
GIVE_UP_S = 15.0
"""How long a worker may take to give up its partition: for an open transaction, but not for code that does not return.
The group waits meanwhile. A worker that is left behind ends when the code returns; it is fenced by the next owner.
"""
TOPIC_LOOK_S = 10.0
"""How often the owners of partitions look whether what they read is still the same topic."""
MAX_PAUSE_S = 5.0
COMMIT_IDLE_S = 600.0
"""How often an idle worker may commit its offset: less often than topics delete records."""
MAX_ATTEMPTS = 120
"""About ten minutes without progress; then the process ends, and its supervisor decides."""
MACHINE_ATTEMPTS: Final = 3
"""So often a fault of this machine, such as a full disk, is met again at once; then others get its partitions."""
MACHINE_FAULTS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
AWAY_S, MAX_AWAY_S = 1.0, 60.0
"""How long a member stays out of its group after a fault of its machine: longer after each fault that soon follows."""
FORGET_FAILURES_S = 60.0
"""After this time without a failure, earlier failures no longer count, even if no record came."""

PARTITIONS: Final = gauge("partitions_owned", "Partitions that this process serves in a role.", ["role"])
RECORDS: Final = counter("partition_records", "Records worked through in a role.", ["role"])
TRANSACTIONS: Final = counter("transactions", "Transactions in a role, by how they ended.", ["role", "outcome"])
TRANSACTION_SECONDS: Final = seconds(
    "transaction_seconds", "From the first record of a transaction, with its decisions, to its commit.", ["role"]
)

logger = logging.getLogger(__name__)


class PartitionTask(Protocol):
    """The work on one partition while it is owned; made again at each takeover.

    After any error in `restore` or `work`, the outcome of the last transaction is unknown, so the partition is owned
    and restored again, with a new task. EventLogError and LocalStateError are expected; for any other error, the log
    has the traceback.
    """

    def restore(self, writer: PartitionWriter, stopped: Callable[[], bool]) -> str:
        """Read all that the log has for the partition, or stop early at `stopped`; returns a summary.

        writer: to put right what the log has, before the next offset is read.
        """

    def wait_s(self) -> float:
        """Seconds until `work` should be called even without records; 0 or less: now."""

    def work(self, writer: PartitionWriter, records: Sequence[Record]) -> Sequence[Record] | None:
        """One transaction: append the results of `records`, which may be empty, and commit the offset after them.

        Returns the records at the end of `records` that did not fit, for the next transaction; None means none.
        """

    def close(self) -> None:
        """Release resources."""


class PartitionOwner:
    """A member of the group of a role, with one worker per assigned partition."""

    def __init__(
        self,
        log: EventLog,
        role: Role,
        new_task: Callable[[int], PartitionTask],
        check_machine: Callable[[], object] = lambda: None,
    ) -> None:
        """new_task: makes the task of a partition; called in the worker's thread, after earlier owners are fenced.

        check_machine: raises LocalStateError while this machine cannot serve; asked after it could not.
        """
        self._log, self._role, self._new_task, self._check_machine = log, role, new_task, check_machine
        self._workers: dict[int, PartitionWorker] = {}
        """Of the assigned partitions; one that was fenced stays until its partition is taken over again, or revoked."""
        self._left: dict[int, PartitionWorker] = {}
        """Workers that had not ended when their partition was given up."""
        self._slow_code = SlowCode(log, role)
        self._topic_id = self._found_id = ""
        self._look_at = 0.0
        self._looking: threading.Thread | None = None

    def run(self, stopped: threading.Event) -> None:
        """Serve until `stopped` is set; raises if a worker gave up. Only this thread starts workers.

        After a fault of this machine it leaves the group, so that healthy members take the partitions over, and joins
        it again once the machine is well.
        """
        away_s = 0.0
        while not stopped.is_set():
            joined_at = time.monotonic()
            fault = self._serve(stopped)
            if fault is None:
                return
            is_new = time.monotonic() - joined_at > FORGET_FAILURES_S
            away_s = AWAY_S if is_new else min(max(AWAY_S, 2 * away_s), MAX_AWAY_S)
            logger.error("the %s gives its partitions up to other members of its group: %s", self._role.name, fault)
            while not stopped.wait(away_s):
                try:
                    self._check_machine()
                    break
                except LocalStateError as error:
                    logger.debug("the %s stays out of its group: %s", self._role.name, error)

    def _serve(self, stopped: threading.Event) -> BaseException | None:
        """Serve as a member of the group; returns the fault of this machine for which it has left the group."""
        member = self._log.join(self._revoke, self._role)
        try:
            while not stopped.is_set():
                self._look_at_topic()
                assigned = member.poll(MEMBER_POLL_S)
                for worker in list(self._workers.values()):
                    worker.check()
                    if worker.machine_fault is not None:
                        return worker.machine_fault
                    if worker.may_be_replaced():
                        del self._workers[worker.partition]
                        self._start(worker.partition, worker.attempts)
                for partition in sorted(assigned - self._workers.keys()):
                    self._start(partition)
                member.show({worker.partition: worker.position for worker in self._workers.values() if worker.position})
                threads = [*self._workers.values(), *self._left.values()]
                self._slow_code.report({thread.partition: thread.ident for thread in threads})
            return None
        finally:
            self._revoke(frozenset(self._workers))
            self._slow_code.close()
            member.close()

    def _look_at_topic(self) -> None:
        """Start all workers again if what they read was recreated: they would wait for its offsets."""
        before, self._topic_id = self._topic_id, self._found_id
        if before not in ("", self._topic_id):
            logger.error('"%s" was recreated while it was read', self._role.reads)
            self._revoke(frozenset(self._workers))
        if (now := time.monotonic()) >= self._look_at and not (self._looking and self._looking.is_alive()):
            self._look_at = now + TOPIC_LOOK_S
            # in a thread: while Kafka is unavailable, the answer takes longer than a member may be silent
            self._looking = threading.Thread(target=self._ask_for_topic, name=f"{self._role.name}-topic", daemon=True)
            self._looking.start()

    def _ask_for_topic(self) -> None:
        with suppress(EventLogError):  # it is asked again
            self._found_id = self._log.incarnation(self._role.reads)

    def _start(self, partition: int, attempts: int = 0) -> None:
        """Take over a partition, unless an earlier worker of this process still holds its local state."""
        left = self._left.get(partition)
        if left is not None and left.is_alive():
            return
        self._left.pop(partition, None)
        logger.info("partition %d: taking over as %s", partition, self._role.name, extra=self._facts(partition))
        worker = PartitionWorker(self._log, self._role, partition, self._new_task, attempts)
        self._workers[partition] = worker
        worker.start()

    def _revoke(self, partitions: frozenset[int]) -> None:
        workers = [self._workers.pop(partition) for partition in partitions & self._workers.keys()]
        for worker in workers:
            worker.stop()
        given_up_at = time.monotonic()
        for worker in workers:
            code = running_in(worker.ident)
            since = given_up_at if code is None else code.since_s
            worker.join(max(0.0, since + GIVE_UP_S - time.monotonic()))
            if worker.is_alive():
                self._left[worker.partition] = worker
                logger.error(
                    "partition %d: given up as %s, although its worker has not ended: it runs %s",
                    worker.partition, self._role.name, running_in(worker.ident) or "none of your code",
                    extra=self._facts(worker.partition),
                )  # fmt: skip
            else:
                facts = self._facts(worker.partition)
                logger.info("partition %d: given up as %s", worker.partition, self._role.name, extra=facts)

    def _facts(self, partition: int) -> dict[str, object]:
        """What a line of the log is about."""
        return {"role": self._role.name, "partition": partition}


def is_machine_fault(error: BaseException) -> bool:
    """Whether another machine may do what has failed here: the disk is full or broken, or there are too many files."""
    return isinstance(error, LocalStateError) or (isinstance(error, OSError) and error.errno in MACHINE_FAULTS)


@contextmanager
def transaction(role: str, records: int) -> Iterator[None]:
    """A context that measures one transaction in a role."""
    began, outcome = time.perf_counter(), "failed"
    try:
        yield
        outcome = "committed"
    except Fenced:
        outcome = "fenced"
        raise
    finally:
        TRANSACTIONS.labels(role, outcome).inc()
        if outcome == "committed":
            RECORDS.labels(role).inc(records)
            TRANSACTION_SECONDS.labels(role).observe(time.perf_counter() - began)


def run_together(owners: Sequence[PartitionOwner], stopped: threading.Event) -> None:
    """Run several owners until `stopped` is set; if one fails, the others stop, and its error is raised."""
    with ThreadPoolExecutor(len(owners), "owner") as threads:
        running = [threads.submit(owner.run, stopped) for owner in owners]
        try:
            while not wait(running, SIGNAL_S, FIRST_COMPLETED).done and not stopped.is_set():
                pass
        finally:
            stopped.set()
        for task in running:
            task.result()


class PartitionWorker(threading.Thread):
    """The thread that owns one partition: fence, restore, then one transaction after another.

    It ends if another owner has fenced it: only the thread that polls the membership knows whose the partition is now.
    It ends as well if this machine cannot serve: then others get the partition.
    """

    def __init__(
        self,
        log: EventLog,
        role: Role,
        partition: int,
        new_task: Callable[[int], PartitionTask],
        attempts: int = 0,
    ) -> None:
        """attempts: those that workers before it have made without progress."""
        super().__init__(name=f"{role.name}-{partition}", daemon=True)
        self.partition = partition
        self._log, self._role, self._new_task = log, role, new_task
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self.machine_fault: BaseException | None = None
        """Why it has ended, if that was a fault of this machine."""
        self.attempts = attempts
        """Since the last progress."""
        self._failed_at = float("-inf")
        self._is_fenced = False
        self.position = 0
        """Up to where its transactions have worked through what it reads; 0 until that is known. For show only."""

    def stop(self) -> None:
        """Finish the open transaction, then end the thread."""
        self._stopped.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._failure is not None:
            raise self._failure

    def may_be_replaced(self) -> bool:
        """Whether it was fenced, so long ago that the partition is assigned to this member on purpose."""
        return self._is_fenced and time.monotonic() - self._failed_at >= FENCED_PAUSE_S and not self.is_alive()

    def run(self) -> None:
        """Serve until stopped, or fenced. After any other error, own, restore and decide again."""
        with about(role=self._role.name, partition=self.partition):
            self._run()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._serve()
            except BaseException as error:
                self.attempts += 1
                self._failed_at = time.monotonic()
                # an operator is waited for: what else this process does goes on
                if self.attempts >= MAX_ATTEMPTS and not isinstance(error, RecordsLost):
                    logger.error("partition %d: giving up after %d attempts", self.partition, self.attempts)
                    self._failure = error
                    return
                if isinstance(error, Fenced):
                    logger.warning("partition %d: %s", self.partition, error)
                    self._is_fenced = True
                    return
                if is_machine_fault(error) and self.attempts >= MACHINE_ATTEMPTS:
                    self.machine_fault = error
                    return
                pause_s = min(MAX_PAUSE_S, 0.1 * 2 ** min(self.attempts, 10))
                expected = isinstance(error, EventLogError | LocalStateError)
                logger.log(
                    logging.WARNING if expected else logging.ERROR,
                    "partition %d: attempt %d failed, retrying in %.1f s: %s",
                    self.partition, self.attempts, pause_s, error,
                    exc_info=None if expected else error,
                )  # fmt: skip
                self._stopped.wait(pause_s)

    def _serve(self) -> None:
        started = time.monotonic()
        # from here on no earlier owner can commit, and its open transaction has ended
        with closing(self._log.own(self.partition, self._role)) as writer:
            owned = time.monotonic()
            with closing(self._new_task(self.partition)) as task:
                restored = task.restore(writer, self._stopped.is_set)
                if self._stopped.is_set():
                    return
                next_offset = resume_offset(self._log, self._role, writer)
                logger.info(
                    'partition %d: serving "%s" from offset %d; owned in %.2f s, restored in %.2f s (%s)',
                    self.partition, self._role.reads, next_offset, owned - started, time.monotonic() - owned, restored,
                )  # fmt: skip
                with PARTITIONS.labels(self._role.name).track_inprogress():
                    self._work(writer, task, next_offset)

    def _work(self, writer: PartitionWriter, task: PartitionTask, next_offset: int) -> None:
        not_before = float("-inf")
        noted, note_at = next_offset, time.monotonic() + COMMIT_IDLE_S
        with closing(self._log.tail(self._role.reads, {self.partition: next_offset}, rereads=False)) as tail:
            while not self._stopped.is_set():
                records: Sequence[Record] = tail.poll(self._limit(), min(POLL_S, max(0.0, task.wait_s())))
                gap_s = not_before - time.monotonic()
                if records and gap_s > 0:
                    self._stopped.wait(gap_s)
                    records = [*records, *tail.poll(self._limit(), 0.0)]
                if records or task.wait_s() <= 0:
                    not_before = time.monotonic() + until_round_s() if len(records) > 1 else float("-inf")
                    self._work_through(writer, task, records)
                if not self._stopped.is_set():  # else the last transaction may have left records
                    self.position = tail.position(self.partition)
                if records:
                    noted = records[-1].offset + 1
                elif tail.position(self.partition) > noted and time.monotonic() >= note_at:
                    noted, note_at = tail.position(self.partition), time.monotonic() + COMMIT_IDLE_S
                    commit_position(writer, noted)

    def _work_through(self, writer: PartitionWriter, task: PartitionTask, records: Sequence[Record]) -> None:
        """One transaction, and one more for the records that did not fit, unless it is time to stop."""
        while True:
            with transaction(self._role.name, len(records)):
                rest = task.work(writer, records) or ()
            # an empty transaction, such as of a heartbeat, does not prove that the failed records now succeed
            if records or time.monotonic() - self._failed_at > FORGET_FAILURES_S:
                self.attempts = 0
            if not rest or self._stopped.is_set():
                return
            records = rest

    def _limit(self) -> int:
        """How many records to take at once: fewer after each failure, to commit those before the faulty one."""
        return max(1, BATCH_RECORDS >> self.attempts)
