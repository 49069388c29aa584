"""Many runs, wherever they run: frozen first, then left to a place, and a figure at the end.

Jobs are frozen before the first one starts, run seed by seed so that arms stay balanced if the
sweep is stopped, and cannot take each other down.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pods import job
from pods.config import Config
from pods.console import forgiving_console
from pods.launch.place import Place
from pods.process import job_name
from pods.runs.frozen import freeze
from pods.runs.status import state_of
from pods.runs.store import RunStore

LAST_LINES = 5


class SweepFailed(Exception):
    """Some jobs did not end well; the message lists each of them."""

    def __init__(self, message: str, code: int) -> None:
        """`code` is the exit code for the whole sweep."""
        super().__init__(message)
        self.code = code


@forgiving_console()
def run(configs: Sequence[Config], place: Place) -> None:
    """Freeze all jobs, run those with work left, print what happened, draw the figure.

    Raises:
        SweepFailed: some jobs failed or were stopped; the others are done.
    """
    in_order = sorted(configs, key=lambda config: config.seed)  # stable: seed-major
    frozen = {store.folder: (store, c) for c in in_order if (store := freeze(c))}
    jobs = list(frozen.values())
    states = Counter(state_of(store) for store, _ in jobs)
    at_once = min(place.at_once, len(jobs))
    print(f"{len(jobs)} jobs, {states['done']} done before, {at_once} at a time", flush=True)
    print(f"memory: {place.memory}", flush=True)
    if states["failed"] and any(c.retry != "failed" for _, c in jobs):
        print(f"{states['failed']} failed before; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} running already")
    stopped = place.run([(s, c) for s, c in jobs if job.to_do(s, c.retry)])
    not_done = [(s, c) for s, c in jobs if s.status()["state"] != "done"]
    print(f"{len(jobs) - len(not_done)} of {len(jobs)} jobs done")
    if not_done:
        again = stopped or {state_of(s) for s, _ in not_done} <= {"preempted", "running"}
        message = "\n".join(_account(store, config) for store, config in not_done)
        raise SweepFailed(message, job.AGAIN if again else job.FAILED)
    _draw(configs[0], [store.folder for store, _ in jobs])


def _account(store: RunStore, config: Config) -> str:
    """Why a job is not done, with the end of its newest console."""
    error = store.status().get("error")
    lines = [f"{state_of(store)}: {job_name(config)}: {error or 'not finished'}"]
    consoles = sorted((store.folder / "attempts").glob("*/console.log"))
    if error and consoles:
        tail = consoles[-1].read_text(errors="replace").splitlines()[-LAST_LINES:]
        lines += [f"    {line}" for line in tail] + [f"    ({consoles[-1]})"]
    return "\n".join(lines)


def _draw(config: Config, folders: Sequence[Path]) -> None:
    from pods.analysis.study import draw

    try:
        for line in draw(Path(config.runs_dir) / config.study, folders):
            print(line)
    except ValueError as error:
        print(f"no figure: {error}")
