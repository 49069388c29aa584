"""The command channel: rank 0 sends a command to all other ranks and gathers their results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from pods.policy.process_group import Cancelled, ProcessGroup, lost_connections

HEARTBEAT_SECONDS = 0.5  # between heartbeats in the store that all ranks share
POLL_SECONDS = 1e-4


@dataclass
class CommandChannel:
    """Commands to the ranks of a run, as rank 0 or one of the others sees them."""

    process_group: ProcessGroup
    sent: int = 0
    """Number of commands so far; equal on all ranks."""
    cancelled: int = 0
    """Number of the last command that was cancelled."""
    open: bool = False
    """True while the last command is being carried out."""
    last_heartbeat: float = 0.0
    """Time at which this rank last used the shared store."""
    heartbeats_seen: int = 0
    """Heartbeats of the other ranks that rank 0 has seen."""

    def send(self, command: Any) -> None:
        """Send the next command to all other ranks."""
        self.sent += 1
        self.open = True
        self.process_group.broadcast(command)

    def receive(self) -> Any:
        """Wait for the next command of rank 0."""
        self.sent += 1
        return self.process_group.broadcast(None)

    def cancel(self) -> None:
        """Tell the other ranks to abandon the command that they are carrying out."""
        if self.cancelled < self.sent:
            self.cancelled = self.sent
            with lost_connections():
                self.process_group.store.set(f"cancelled/{self.sent}", "")

    def heartbeat(self) -> None:
        """Send a heartbeat now and then, and check whether rank 0 has cancelled the command.

        Raises:
            Cancelled: rank 0 has cancelled it.
        """
        if self._is_time():
            with lost_connections():
                self.process_group.store.add("heartbeats", 1)
                cancelled = self.process_group.store.check([f"cancelled/{self.sent}"])
            if cancelled:
                raise Cancelled

    def others_are_alive(self) -> bool:
        """Return whether another rank has sent a heartbeat since rank 0 last looked."""
        if not self._is_time():
            return False
        before = self.heartbeats_seen
        with lost_connections():
            self.heartbeats_seen = self.process_group.store.add("heartbeats", 0)
        return self.heartbeats_seen > before

    def _is_time(self) -> bool:
        if time.monotonic() - self.last_heartbeat < HEARTBEAT_SECONDS:
            return False
        self.last_heartbeat = time.monotonic()
        return True

    def gather(self, result: Any, waiting: Callable[[], None]) -> list[Any] | None:
        """Wait until all ranks are done; return their results by rank on rank 0, None elsewhere.

        Args:
            result: the result of this rank.
            waiting: called repeatedly until the last rank is done.
        """
        results = [None] * self.process_group.size if self.process_group.is_main else None
        with lost_connections():
            work = dist.barrier(group=self.process_group.control, async_op=True)
            while not work.is_completed():
                waiting()
                time.sleep(POLL_SECONDS)
            work.wait()
            dist.gather_object(result, results, group=self.process_group.control)
        self.open = False
        return results
