"""What the process that leads tells the others to do, and how it hears that they have done it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from pods.policy.team import Abandoned, Team, lost_connections

LOOK_SECONDS = 0.5  # between looks at the board
POLL_SECONDS = 1e-4


@dataclass
class Orders:
    """Orders to the processes of a run, as the one that leads or one of the others sees them."""

    team: Team
    given: int = 0
    """So far; the same on all."""
    given_up: int = 0
    """The last one that was."""
    open: bool = False
    """The last one is being carried out."""
    looked: float = 0.0
    """When this process last looked at the board."""
    seen: int = 0
    """Of the others' signs of life, by the leader."""

    def give(self, what: Any) -> None:
        """Tell all others what to do next."""
        self.given += 1
        self.open = True
        self.team.leaders(what)

    def wait(self) -> Any:
        """What the leader wants done next."""
        self.given += 1
        return self.team.leaders(None)

    def give_up(self) -> None:
        """Tell the others that what they are at is not wanted any more."""
        if self.given_up < self.given:
            self.given_up = self.given
            with lost_connections():
                self.team.board.set(f"given up/{self.given}", "")

    def look(self) -> None:
        """Give a sign of life, now and then, and see whether the leader has given up this order.

        Raises:
            Abandoned: it has.
        """
        if self._time_to_look():
            with lost_connections():
                self.team.board.add("signs", 1)
                given_up = self.team.board.check([f"given up/{self.given}"])
            if given_up:
                raise Abandoned

    def others_get_on(self) -> bool:
        """Whether one of the others has given a sign of life since the leader last looked."""
        if not self._time_to_look():
            return False
        before = self.seen
        with lost_connections():
            self.seen = self.team.board.add("signs", 0)
        return self.seen > before

    def _time_to_look(self) -> bool:
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return False
        self.looked = time.monotonic()
        return True

    def collect(self, outcome: Any, waiting: Callable[[], None]) -> list[Any] | None:
        """Wait for all to be done; what each has made, for the leader.

        Args:
            outcome: what this process has made.
            waiting: called on and on until the last one is done.
        """
        found = [None] * self.team.size if self.team.leads else None
        with lost_connections():
            work = dist.barrier(group=self.team.control, async_op=True)
            while not work.is_completed():
                waiting()
                time.sleep(POLL_SECONDS)
            work.wait()
            dist.gather_object(outcome, found, group=self.team.control)
        self.open = False
        return found
