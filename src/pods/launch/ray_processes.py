"""The processes of one run on the machines of a Ray cluster, each started by an actor.

The driver has made a placement group for the run (`ray_backend.py`). Actors end with the process
that asked for them, and what they have started ends with them.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pods.config.schema import HardwareConfig
from pods.launch.backend import REFRESH_SECONDS
from pods.runs.store import RunStore
from pods.system import machine
from pods.system.signals import PeerLost, Stop

NAMESPACE = "pods"
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}


def connect(**settings: Any) -> None:
    """Join a Ray cluster, or start one here; `settings` are those of `ray.init`.

    Ray puts the current folder first on the path of its workers, where a file named numpy.py would
    replace the library. So the current folder is / meanwhile. A run's process goes to the sweep's
    folder itself, which then comes last on its path.
    """
    with chdir("/"):
        ray.init(**(QUIET | settings | {"namespace": NAMESPACE}))


class Host:
    """An actor, which has one process of the run on its machine."""

    process: "Popen[bytes]"

    def free_port(self) -> str:
        """Return an address of this machine at which the processes can meet."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def start(self, command: Sequence[str], own: Mapping[str, str], cwd: str, console: str) -> None:
        """Start the process, whose environment is that of the actor and some of its own."""
        with Path(console).open("wb") as output:
            self.process = Popen(
                command,
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                cwd=cwd,
                env=dict(os.environ) | dict(own),
                start_new_session=True,
            )

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the process."""
        return getattr(self.process, method)(*arguments)


class RemoteProcess:
    """A process on a machine of the cluster, with the methods of its `Popen` there."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return ray.get(self.host.call.remote(method, *arguments))
            except RayActorError:  # its machine is gone, and so it was killed
                return -signal.SIGKILL

        return call


def start_processes(
    store: RunStore, command: Sequence[str], attempt: Path, stop: Stop
) -> list[Any]:
    """Start a run's processes, `RemoteProcess` each, whose output is in the attempt's folder.

    None of them starts before there is room for all, or at all if the run is asked to stop.
    `PeerLost`: a machine is gone, or the sweep that has made the placement group.
    """
    address, name = os.environ[machine.RAY].split()
    handler = signal.getsignal(signal.SIGTERM)
    connect(address=address)
    signal.signal(signal.SIGTERM, handler)  # Ray's own would end this process at once

    hardware = store.config().hardware
    shared = {
        "WORLD_SIZE": str(hardware.processes),
        "PYTHONPATH": machine.python_path(),
        "LOCAL_RANK": "0",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    try:
        group = ray.util.get_placement_group(name)
        hosts = [_host(group, rank, hardware) for rank in range(hardware.processes)]
        ports = [host.free_port.remote() for host in hosts]
        while ray.wait(ports, num_returns=len(ports), timeout=REFRESH_SECONDS)[1]:
            store.set_status()  # a heartbeat
            if stop.requested:
                return []

        shared[machine.RENDEZVOUS] = ray.get(ports)[0]
        for rank, host in enumerate(hosts):
            console = str(attempt / f"console.{rank}.log")
            own = shared | {"RANK": str(rank)}
            ray.get(host.start.remote(command, own, str(Path.cwd()), console))
    except (RayError, ValueError) as error:
        raise PeerLost("a machine of the cluster, or the sweep, is gone") from error
    return [RemoteProcess(host) for host in hosts]


def _host(group: Any, rank: int, hardware: HardwareConfig) -> Any:
    """Create the actor of a rank, in its place of the placement group."""
    options = ray.remote(Host).options(
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        num_cpus=hardware.threads,
        num_gpus=1 if hardware.device == "cuda" else 0,
    )
    return options.remote()
