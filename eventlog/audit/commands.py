"""The way of every verb of a command line: each is recorded, unless it is listed as one that changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from headwater.eventlog.audit.trail import AuditRecord, Outcome, Trail
from headwater.eventlog.errors import EventLogError, NotRecorded
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.programs.command_line import print_error

FAILED_EXIT: Final = 1
USAGE_EXIT: Final = 2
MUST_RECORD: Final = "must_record"
"""The option of a command line that works without Kafka: then it does nothing that cannot be recorded."""


class Refused(typer.Exit):
    """The verb refused; reason: as it was printed."""

    outcome: ClassVar[Outcome] = "refused"

    def __init__(self, reason: str, code: int = FAILED_EXIT) -> None:
        super().__init__(code)
        self.reason = reason


class Declined(Refused):
    """Whoever was asked for confirmation did not give it."""

    def __init__(self) -> None:
        super().__init__("not confirmed")


class Failed(Refused):
    """The verb did not do all that it should."""

    outcome = "failed"


class Audited:
    """What records actions.

    program: the beginning of the verbs in the records. read_only: those that change nothing. refusals: errors that
    refuse what was asked for. works_offline: whether its verbs need no Kafka. urgent: verbs that only stop something,
    which may do harm. A verb of these kinds that cannot be recorded is done nevertheless, and says so, unless there is
    MUST_RECORD.
    """

    program: ClassVar[str] = ""
    read_only: ClassVar[frozenset[str]] = frozenset()
    refusals: ClassVar[tuple[type[BaseException], ...]] = ()
    works_offline: ClassVar[bool] = False
    urgent: ClassVar[frozenset[str]] = frozenset()

    def recorded(self, verb: str, invoke: Callable[[Any], Any], ctx: Any) -> Any:
        """Invoke a command and record what becomes of it. Raises NotRecorded, and whatever the command raises."""
        trail = Trail(os.environ)
        may_be_missing = self.works_offline or verb.removeprefix(f"{self.program} ") in self.urgent
        begun = AuditRecord.begin(verb, ctx.params, trail.settings.environment, os.environ)
        try:
            trail.append(begun)
        except EventLogError as error:
            if not may_be_missing or ctx.find_root().params.get(MUST_RECORD):
                raise NotRecorded(verb, str(error)) from error
            print_error(f"audit: {verb} is not recorded in the audit log: {error}")
            return invoke(ctx)
        outcome: Outcome = "done"
        exit_code, reason = 0, ""
        try:
            if not may_be_missing:
                trail.check_partitions()
            return invoke(ctx)
        except BaseException as error:
            outcome, exit_code, reason = self._outcome(error)
            raise
        finally:
            try:
                trail.append(begun.ended(outcome, exit_code, reason))
            except EventLogError as error:  # what was done is done
                print_error(f"audit: the end of {verb} ({outcome}) is not recorded in the audit log: {error}")

    def _outcome(self, error: BaseException) -> tuple[Outcome, int, str]:
        """What is recorded of a verb that ends with this error."""
        code = getattr(error, "exit_code", FAILED_EXIT)
        match error:
            case Refused():
                return error.outcome, code, error.reason
            case typer.Exit():
                return ("failed" if code else "done"), code, ""
            case KeyboardInterrupt() | typer.Abort():
                return "interrupted", 130, ""
            case SystemExit():
                number = error.code if isinstance(error.code, int) else FAILED_EXIT if error.code else 0
                return ("failed" if number else "done"), number, ""
            case _ if isinstance(error, (*self.refusals, typer.BadParameter)):
                return "refused", USAGE_EXIT, error_text(error)
            case _:
                return "failed", code, error_text(error) or type(error).__name__


class AuditedCommand(Audited, TyperCommand):
    """A program that is one verb."""

    def invoke(self, ctx: Any) -> Any:
        """Invoke it, recorded."""
        return self.recorded(self.program, super().invoke, ctx)


class AuditedCommands(Audited, TyperGroup):
    """A group of verbs. Groups in it must be of this class, too."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, which records what it does when it is invoked."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, TyperGroup) and not hasattr(command, "unrecorded"):
            command.unrecorded = command.invoke  # type: ignore[attr-defined]
            command.invoke = partial(self._invoke, command.invoke)  # type: ignore[method-assign]
        return command

    def _invoke(self, invoke: Callable[[Any], Any], ctx: Any) -> Any:
        names: list[str] = []
        group = ctx
        while group.parent is not None:
            names.insert(0, str(group.info_name))
            group = group.parent
        verb = " ".join(names)
        if verb in self.read_only or ctx.params.get("dry_run"):
            return invoke(ctx)
        return self.recorded(f"{self.program} {verb}", invoke, ctx)
