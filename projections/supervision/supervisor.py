"""Keeps several processes alive; they start and stop in the order of their dependencies."""

from collections.abc import Callable, Sequence

from headwater.eventlog.programs.backoff import DEFAULT_BACKOFF, Backoff
from headwater.projections.supervision.errors import SupervisionError
from headwater.projections.supervision.process import ProcessSpec, ProcessStatus, State
from headwater.projections.supervision.supervised import Supervised


class Supervisor:
    """Several processes; each starts after those that it depends on."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        backoff: Backoff = DEFAULT_BACKOFF,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._processes: dict[str, Supervised] = {}
        for spec in _ordered(specs):
            predecessors = [self._processes[name] for name in spec.after]
            self._processes[spec.name] = Supervised(spec, predecessors, backoff, on_change)

    def __getitem__(self, name: str) -> Supervised:
        return self._processes[name]

    def start(self) -> None:
        """Start everything and return when all are healthy; on StartFailed, stop what has been started."""
        try:
            self.begin(*self._processes)
            for process in self._processes.values():
                process.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def begin(self, *names: str) -> None:
        """Start the processes with these names; returns immediately."""
        for name in names:
            self._processes[name].start()

    @property
    def is_healthy(self) -> bool:
        """Whether every process is healthy now."""
        return all(each.state is State.HEALTHY for each in self.status())

    def stop(self) -> None:
        """Stop everything, each process only after those that came after it."""
        remaining = dict(self._processes)
        while remaining:
            needed = {name for process in remaining.values() for name in process.spec.after}
            last = [process for name, process in remaining.items() if name not in needed]
            for process in last:
                process.release()
            for process in last:
                process.stop()
                del remaining[process.spec.name]

    def status(self) -> list[ProcessStatus]:
        """The state of each process."""
        return [process.status for process in self._processes.values()]


def _ordered(specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
    placed: dict[str, ProcessSpec] = {}
    waiting = {spec.name: spec for spec in specs}
    while waiting:
        ready = [spec for spec in waiting.values() if all(name in placed for name in spec.after)]
        if not ready:
            raise SupervisionError(f"processes wait for each other or for an unknown process: {sorted(waiting)}")
        for spec in ready:
            placed[spec.name] = waiting.pop(spec.name)
    return list(placed.values())
