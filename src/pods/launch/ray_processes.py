"""The processes of one run on the machines of a Ray cluster, each started by an actor.

The driver has made a placement group for the run (`ray_backend.py`). Actors end with the process
that asked for them, and what they have started ends with them.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pods.config.schema import Config
from pods.system import machine

NAMESPACE = "pods"
QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}


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
                command, stdin=DEVNULL, stdout=output, stderr=STDOUT, cwd=cwd,
                env={**os.environ, **own}, start_new_session=True,
            )  # fmt: skip

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


def start_processes(config: Config, command: Sequence[str], attempt: Path) -> list[Any]:
    """Start a run's processes, `RemoteProcess` each, whose output is in the attempt's folder.

    `ConnectionError`: the cluster, or a machine of it, is gone.
    """
    stop = signal.getsignal(signal.SIGTERM)
    ray.init(os.environ[machine.RAY], namespace=NAMESPACE, **QUIET)
    signal.signal(signal.SIGTERM, stop)  # Ray's own would end this process at once
    hardware, group = config.hardware, ray.util.get_placement_group(str(attempt.parent.parent))
    needs = {"num_cpus": hardware.threads, "num_gpus": int(hardware.device == "cuda")}
    places = (PlacementGroupSchedulingStrategy(group, i) for i in range(hardware.in_all()))
    actor = ray.remote(**needs)(Host)
    hosts = [actor.options(scheduling_strategy=place).remote() for place in places]
    shared = {"WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": "0", "PYTHONPATH": machine.python_path()}
    try:
        shared[machine.RENDEZVOUS] = ray.get(hosts[0].free_port.remote())
        for rank, host in enumerate(hosts):
            console, own = str(attempt / f"console.{rank}.log"), {**shared, "RANK": str(rank)}
            ray.get(host.start.remote(command, own, str(Path.cwd()), console))
    except RayActorError as error:
        raise ConnectionError("a machine of the cluster is gone") from error
    return [*map(RemoteProcess, hosts)]
