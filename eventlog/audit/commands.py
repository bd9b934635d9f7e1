"""The way of every verb of a command line: each is recorded, unless it is listed as one that changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from headwater.eventlog.audit.record import AuditRecord, Outcome
from headwater.eventlog.audit.trail import Trail
from headwater.eventlog.errors import EventLogError, NotRecorded
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.programs.command_line import print_error

FAILED_EXIT: Final = 1
USAGE_EXIT: Final = 2
MUST_RECORD: Final = "must_record"
"""The option of a command line that works without Kafka: then it does nothing that cannot be recorded."""


class Declined(typer.Exit):
    """Whoever was asked for confirmation did not give it."""

    def __init__(self) -> None:
        super().__init__(FAILED_EXIT)


class Refused(typer.Exit):
    """The verb refused; reason: as it was printed."""

    def __init__(self, reason: str, code: int = FAILED_EXIT) -> None:
        super().__init__(code)
        self.reason = reason


class Failed(typer.Exit):
    """The verb did not do all that it should; reason: as it was printed."""

    def __init__(self, reason: str, code: int = FAILED_EXIT) -> None:
        super().__init__(code)
        self.reason = reason


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
        recorder = _Recorder(self, verb, ctx)
        recorder.begin()
        try:
            result = invoke(ctx)
        except BaseException as error:
            recorder.end(*self._outcome(error))
            raise
        recorder.end("done", 0, "")
        return result

    def _outcome(self, error: BaseException) -> tuple[Outcome, int, str]:
        """What is recorded of a verb that ends with this error."""
        code = getattr(error, "exit_code", FAILED_EXIT)
        match error:
            case Declined():
                return "refused", code, "not confirmed"
            case Refused():
                return "refused", code, error.reason
            case Failed():
                return "failed", code, error.reason
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


class _Recorder:
    """Records one action."""

    def __init__(self, group: Audited, verb: str, ctx: Any) -> None:
        self._group, self._trail = group, Trail(os.environ)
        may_be_missing = group.works_offline or verb.removeprefix(f"{group.program} ") in group.urgent
        self._must = not may_be_missing or bool(ctx.find_root().params.get(MUST_RECORD))
        self._begun = AuditRecord.begin(verb, ctx.params, self._trail.settings.environment, os.environ)
        self._recorded = False

    def begin(self) -> None:
        """Record the beginning; raises NotRecorded if the action must not be done without."""
        try:
            self._trail.append(self._begun)
            self._recorded = True
        except EventLogError as error:
            if self._must:
                raise NotRecorded(self._begun.verb, str(error)) from error
            print_error(f"audit: {self._begun.verb} is not recorded in the audit log: {error}")

    def end(self, outcome: Outcome, exit_code: int, reason: str) -> None:
        """Record the end; if that fails, it says so, because what was done is done."""
        if not self._recorded:
            return
        try:
            self._trail.append(self._begun.ended(outcome, exit_code, reason))
        except EventLogError as error:
            print_error(f"audit: the end of {self._begun.verb} ({outcome}) is not recorded in the audit log: {error}")
