"""How much memory this machine lends to this process."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pods.runs.environment import visible_gpus

CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT = 2**60  # cgroups of version 1 write a number for "none"


def free_memory(device: str) -> tuple[int, int] | None:
    """What this process may use now, and what there is in all, in bytes; asked without torch.

    The first counts what the process holds already, and not what others do now.

    Args:
        device: cpu, or cuda: the first card that is visible.

    Returns:
        None where it cannot be told.
    """
    return _host() if device == "cpu" else _card()


def _card() -> tuple[int, int] | None:
    told = [facts for _, facts in visible_gpus("memory.free,memory.total")]
    if not told or not told[0]:
        return None
    free, total = (int(mebibytes) * 2**20 for mebibytes in told[0].split(", "))
    return free, total


def _host() -> tuple[int, int] | None:
    """The machine's memory, or that of a container around this process."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        return None
    known = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    limits = [(known["MemAvailable"], known["MemTotal"]), *_cgroups()]
    free, total = min(limits)
    return free + own, total


def _cgroups() -> Iterator[tuple[int, int]]:
    """What is left and what is allowed in each control group, of either version, around us."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            root, names = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        elif controllers == "":
            root, names = CGROUPS, ("memory.max", "memory.current")
        else:
            continue
        here = root / path.strip("/")  # a container may see only the root of it
        for folder in (here, *here.parents):
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError):  # not there, or "max"
                    limit, used = (int((folder / name).read_text()) for name in names)
                    if limit < NO_LIMIT:
                        yield limit - used + _reclaimable(folder), limit


def _reclaimable(folder: Path) -> int:
    """Bytes of files that the kernel keeps only while nobody needs the room."""
    lines = (folder / "memory.stat").read_text().splitlines()
    found = dict(line.split() for line in lines)
    return int(found.get("total_inactive_file", found.get("inactive_file", 0)))
