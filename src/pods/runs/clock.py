"""The training clock: the x axis of every figure."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pods.runs.meter import Meter

PHASES = ("generate", "reward", "select", "update", "sync")


class TrainClock:
    """Sums the seconds of the phases of committed steps; nothing else is training time.

    Engine start, checkpoints, evaluation and logging pass between phases and are not counted.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        synchronise: Callable[[], None] = lambda: None,
        train_seconds: float = 0.0,
        meter: Meter | None = None,
    ) -> None:
        """Start at `train_seconds`; `now` is monotonic, `synchronise` waits for the device.

        Args:
            now: where seconds come from; tests bring their own, so that seconds repeat too.
            synchronise: called at both ends of a phase.
            train_seconds: of the steps committed so far.
            meter: is told of the phases too, for the record of the process.
        """
        self.now = now
        self.meter = meter or Meter()
        self.synchronise = synchronise
        self.train_seconds = train_seconds
        self._step = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase of the step in progress."""
        with self.meter.phase(name):
            self.synchronise()
            start = self.now()
            yield
            self.synchronise()
            self._step[name] += self.now() - start

    def commit(self) -> dict[str, float]:
        """Close the step: add its seconds to the clock and return them by phase."""
        seconds, self._step = self._step, dict.fromkeys(PHASES, 0.0)
        self.train_seconds += sum(seconds.values())
        return seconds
