"""End runs at random moments and start them again until they are done. A script, not a module.

    python killing.py kill FOLDER KILLS SEED    SIGKILL, in every phase
    python killing.py vllm FOLDER KILLS SEED    the same on vLLM
    python killing.py stop FOLDER 0             signals that ask to stop: one at least in every
                                                phase, or (1) each

One warm process forks every attempt, so that a start costs a fork and not the import of torch.
Each attempt is `launch.job.execute` as a user's process calls it, under a training clock that ticks
and a wall clock that is set to another day at every look. The attempt says on a pipe which phase it
enters; a random moment later its end comes. Prints JSON for `test_kill.py`: what happened, and
every difference to a run that was left alone.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from functools import partial
from importlib import import_module
from itertools import count, cycle, product
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pandas as pd
from compose import composed
from forking import ON_VLLM as FOR_VLLM

from pods.analysis.draw import draw
from pods.analysis.figures import style  # noqa: F401
from pods.launch import fork_server, job
from pods.runs.files import read_lines
from pods.runs.freeze import freeze
from pods.runs.history import newest_checkpoint
from pods.runs.store import RunStore
from pods.system.errors import DONE
from pods.training.clock import Meter

SMALL = ("tracking=none", "nm.n=8", "nm.m=4", "prompts_per_step=2", "rollouts_every_steps=2",
         "evaluation.questions=16", "evaluation.repeats=2", "engine.max_rows=8",
         "watchdog_seconds=60")  # fmt: skip
KINDS = {
    "full": ("budget.train_seconds=null", "budget.max_steps=8", "checkpoint.every_steps=3",
             "arm=pods_greso", "task.train_size=12", "group_filter.max_batches=3"),
    "adapters": ("model.tuning=lora", "budget.train_seconds=null", "budget.max_steps=7",
                 "checkpoint.every_steps=2", "update.epochs=2", "update.minibatches=2",
                 "update.kl_beta=0.1", "update.schedule=cosine", "update.schedule_steps=7",
                 "prompts=mopps", "task.train_size=12", "engine.lag=2"),
    "seconds": ("model.tuning=lora", "group_filter=skip", "budget.train_seconds=2.5",
                "prompts=arcus", "task.train_size=12",
                "checkpoint.every_steps=null",
                "checkpoint.every_train_seconds=1")}  # fmt: skip
ON_VLLM = {
    "merged": ("engine=vllm", *KINDS["full"]),
    "adapters": ("engine=vllm", *KINDS["adapters"]),
    "swapped": ("engine=vllm", "model.tuning=lora", "engine.sync=adapter",
                "update.importance=token_truncate", "budget.train_seconds=null",
                "budget.max_steps=5", "checkpoint.every_steps=2", "nm.n=4", "nm.m=2")}  # fmt: skip
EARLIER = {"full": "budget.max_steps=6", "adapters": "budget.max_steps=4"}
"""A smaller budget, from which every second run is trained on; it ends at an evaluation point."""
STRATA = ("generate", "update", "checkpoint", "evaluation", "aggregation")
STOPPED = ("start", "generate", "update", "checkpoint", "evaluation")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
FEW_STOPS = [
    *((phase, signal.SIGTERM) for phase in STOPPED),
    *zip(("update", "evaluation", "generate"), SIGNALS[1:], strict=True),
]
LASTS = {  # about how long a phase lasts, in seconds
    "start": 0.5, "generate": 0.03, "update": 0.05, "checkpoint": 0.03, "evaluation": 0.2,
    "aggregation": 0.8}  # fmt: skip
TICK = 0.0625  # exact in binary, so that a phase lasts as long whenever it comes


class Attempt:
    """A forked process that reports the phases it enters."""

    def __init__(self, store: RunStore, work) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            code = 70
            try:
                with (store.folder / "console.log").open("ab") as console:
                    os.dup2(console.fileno(), 1)
                    os.dup2(console.fileno(), 2)
                announce(write)
                days = cycle((0.0, 86400.0, -86400.0))
                wall = time.time
                time.time = lambda: wall() + next(days)
                code = work()
            finally:
                os._exit(code)
        os.close(write)
        self.phases = os.fdopen(read, "rb", buffering=0)

    def wait_for(self, phase: str, times: int) -> bool:
        """Wait until a phase is entered for the n-th time; False if the process ends first."""
        wanted = phase[:1].encode()
        while times:
            entered = self.phases.read(1)
            if not entered:
                return False
            times -= entered == wanted
        return True

    def end(self, how: signal.Signals | None = None) -> int:
        """Wait for the end, brought about by a signal if one is named; return the exit code."""
        if how is not None:
            os.kill(self.pid, how)
        _, status = os.waitpid(self.pid, 0)
        self.phases.close()
        return os.waitstatus_to_exitcode(status)


def announce(pipe: int) -> None:
    """Make the meter of this process tell which phases it enters."""
    enter = Meter.phase

    def phase(self, name):
        os.write(pipe, name[:1].encode())
        return enter(self, name)

    Meter.phase = phase


def start(store: RunStore) -> Attempt:
    return Attempt(store, lambda: job.execute(store.folder, now=count(TICK, TICK).__next__))


def start_aggregation(store: RunStore) -> Attempt:
    def work() -> int:
        with Meter().phase("aggregation"):
            return 0 * len(list(draw(figures(store).parent, [store.folder])))

    return Attempt(store, work)


def figures(store: RunStore) -> Path:
    return store.folder.parents[2] / "figures"


def bytes_of(store: RunStore) -> dict[str, bytes]:
    """Everything that a run leaves, apart from the record of its attempts."""
    own = {"attempts", "status.json", "console.log", ".lock", "config.yaml"}
    files = [p for p in store.folder.rglob("*") if p.is_file()] + list(figures(store).glob("*"))
    names = {str(p.relative_to(store.folder.parents[2])): p for p in files}
    found = {n: p.read_bytes() for n, p in names.items() if not own & set(Path(n).parts)}
    if "figures/runs.csv" in found:  # which says when the run began
        table = pd.read_csv(names["figures/runs.csv"]).drop(columns="started")
        found["figures/runs.csv"] = table.to_csv().encode()
    return found


def kill_and_resume(
    store: RunStore, wanted: list[str], chance: random.Random, kills: Counter
) -> None:
    """Run to the end, killed once for each phase that is wanted, if it is reached."""
    for stratum in wanted:
        if stratum == "aggregation":
            finish(store)
        attempt = start_aggregation(store) if stratum == "aggregation" else start(store)
        several = ("generate", "update")
        times = chance.randint(1, 3) if stratum in several else 1
        if attempt.wait_for(stratum, times):
            time.sleep(chance.random() * LASTS[stratum])
            if attempt.end(signal.SIGKILL) == -signal.SIGKILL:
                kills[stratum] += 1
        else:
            attempt.end()
    finish(store)
    code = start_aggregation(store).end()
    assert code == 0, f"aggregation ended with {code}"


def finish(store: RunStore) -> None:
    code = start(store).end()
    console = (store.folder / "console.log").read_text()
    assert code == DONE, f"exit code {code}: {console[-2000:]}"


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    names = {*found, *expected}
    return sorted(name for name in names if found.get(name) != expected.get(name))


def reference(folder: Path, overrides: tuple[str, ...]) -> dict[str, bytes]:
    """What a run that is left alone leaves."""
    store = freeze(composed(*SMALL, *overrides, f"runs_dir={folder / 'reference'}"))
    finish(store)
    assert start_aggregation(store).end() == 0
    return bytes_of(store)


def kill(folder: Path, wanted_kills: int, seed: int, kinds: dict = KINDS) -> dict:
    """SIGKILL in every phase, until there were enough."""
    chance, kills, wrong, runs = random.Random(seed), Counter(), [], 0
    kinds = dict(list(kinds.items())[: -(-wanted_kills // 3)])  # few kills take few runs
    expected = {kind: reference(folder / kind, more) for kind, more in kinds.items()}
    while kills.total() < wanted_kills or len(kills) < len(STRATA):
        kind = list(kinds)[runs % len(kinds)]
        place = folder / kind / f"{runs}"
        words = (*SMALL, *kinds[kind], f"runs_dir={place}")
        if runs % 2 == 1 and kind in EARLIER:
            finish(freeze(composed(*words, EARLIER[kind])))
        store = freeze(composed(*words))
        # the phases that were hit least, so that each gets its share
        wanted = sorted(STRATA, key=lambda s: (kills[s], chance.random()))[:3]
        chance.shuffle(wanted)
        wanted.sort(key="aggregation".__eq__)
        kill_and_resume(store, wanted, chance, kills)
        found = differences(bytes_of(store), expected[kind])
        wrong += [f"{kind} {runs}: {name}" for name in found]
        if not found:
            shutil.rmtree(place)
        runs += 1
    return {"kills": kills, "runs": runs, "differences": wrong}


def ask_to_stop(folder: Path, all_stops: int) -> dict:
    """Signals in phases of one run, every one in every phase or some; it goes on each time."""
    pairs, steps = (list(product(STOPPED, SIGNALS)), 100) if all_stops else (FEW_STOPS, 28)
    overrides = (f"budget.max_steps={steps}", "budget.train_seconds=null",
                 "checkpoint.every_steps=7")  # fmt: skip
    expected = reference(folder, overrides)
    store = freeze(composed(*SMALL, *overrides, f"runs_dir={folder / 'stopped'}"))
    chance, rows = random.Random(0), []
    for phase, number in pairs:
        attempt = start(store)
        reached = attempt.wait_for(phase, 2 if phase in ("generate", "update") else 1)
        time.sleep(chance.random() * LASTS[phase])
        sent = time.monotonic()
        os.kill(attempt.pid, number)
        os.kill(attempt.pid, signal.SIGTERM)  # a second one changes nothing
        code = attempt.end()
        newest, _ = newest_checkpoint(store, "optimizer.safetensors")
        rows.append({
            "phase": phase, "signal": number.name, "reached": reached, "exit code": code,
            "seconds": time.monotonic() - sent, "state": store.status()["state"],
            "steps": len(read_lines(store.metrics_path)),
            "checkpoint": store.clock(newest)["step"] if newest else 0})  # fmt: skip
    finish(store)
    assert start_aggregation(store).end() == 0
    return {"stops": rows, "differences": differences(bytes_of(store), expected)}


if __name__ == "__main__":
    what, folder, *numbers = sys.argv[1:]
    does = {"kill": kill, "stop": ask_to_stop, "vllm": partial(kill, kinds=ON_VLLM)}[what]
    for module in FOR_VLLM if what == "vllm" else fork_server.LIBRARIES:  # before the forks
        import_module(module)
    gc.freeze()
    print(json.dumps(does(Path(folder), *map(int, numbers))))
