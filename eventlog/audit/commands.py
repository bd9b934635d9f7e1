"""The verbs of command lines that are recorded in the audit log: before they act, and how they end."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from headwater.eventlog.errors import EventLogError, NotRecorded
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.programs.command_line import print_error

if TYPE_CHECKING:
    from headwater.eventlog.audit.trail import Outcome

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
    """How a program records its verbs: one of AuditedCommand.

    program: the beginning of the verbs in the records. refusals: errors that refuse what was asked for. works_offline:
    whether its verbs need no Kafka. urgent: verbs that only stop something, which may do harm. A verb of these kinds
    that cannot be recorded is done nevertheless, and says so, unless there is MUST_RECORD.
    """

    program: ClassVar[str] = ""
    refusals: ClassVar[tuple[type[BaseException], ...]] = ()
    works_offline: ClassVar[bool] = False
    urgent: ClassVar[frozenset[str]] = frozenset()

    def recorded(self, verb: str, invoke: Callable[[Any], Any], ctx: Any) -> Any:
        """Invoke a command and record what becomes of it. Raises NotRecorded, and whatever the command raises."""
        # here, because a help needs no client of Kafka
        from headwater.eventlog.audit.trail import AuditRecord, Trail  # noqa: PLC0415

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


class AuditedCommands(Audited, TyperGroup):
    """A program with verbs; those that change something are AuditedCommand."""


class AuditedCommand(Audited, TyperCommand):
    """A verb that is recorded unless it is a dry run: as its program says, which it is itself if it is the only one."""

    def invoke(self, ctx: Any) -> Any:
        if ctx.params.get("dry_run"):
            return super().invoke(ctx)
        names: list[str] = []
        root = ctx
        while root.parent is not None:
            names.insert(0, str(root.info_name))
            root = root.parent
        program: Audited = root.command
        return program.recorded(" ".join([program.program, *names]), super().invoke, ctx)
