"""A sweep: freeze many runs, let a backend execute them, report, and draw the figure.

All configs are frozen before the first job starts. Jobs run seed by seed, so that a sweep that is
stopped has equally many seeds of every arm, and no job can take down another.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from pods.analysis.loading.series_names import varied
from pods.config.schema import Config
from pods.launch.backend import Backend, Job, has_work_left, prepare
from pods.launch.figures import draw_figures
from pods.memory.fit import describe_largest
from pods.method.keep import try_functions
from pods.runs.identity import identity_keys
from pods.runs.status import state_of
from pods.system.console import lossy_console, printable
from pods.system.errors import AGAIN, FAILED
from pods.system.machine import warn_if_busy
from pods.tasks.load import check_data


class SweepFailed(Exception):
    """Some jobs are not done; the message lists them."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@lossy_console()
def run(configs: Sequence[Config], backend: Backend, figure: bool = True) -> None:
    """Execute all runs that have work left, print how they ended, and draw the figure if wanted.

    `SweepFailed`: some jobs failed, were stopped or are another process's; the others are done.
    """
    check_data(config.task for config in configs)
    try_functions(configs)
    seed_major = sorted(configs, key=lambda config: config.seed)  # stable
    values = varied([(config, identity_keys(config)) for config in seed_major])
    texts = [" ".join(f"{k.rpartition('.')[2]}={v}" for k, v in of.items()) for of in values]
    jobs = [Job(prepare(of), of, text) for of, text in zip(seed_major, texts, strict=True)]
    jobs = list({job.store.folder: job for job in jobs}.values())
    _announce(jobs, backend)
    stopped = backend.run([job for job in jobs if has_work_left(job.store, job.config.retry)])
    states = Counter(state_of(job.store) for job in jobs)
    print(f"{states['done']} of {len(jobs)} jobs done")
    if states["done"] < len(jobs):
        raise _failure(jobs, states, stopped)
    if figure:
        draw_figures([job.store.folder for job in jobs])


def _announce(jobs: Sequence[Job], backend: Backend) -> None:
    states, many = Counter(state_of(job.store) for job in jobs), "s" * (len(jobs) > 1)
    at_once, local = min(backend.at_once, len(jobs)), jobs[0].config.launch.on == "local"
    print(f"{len(jobs)} job{many}, {states['done']} already done, {at_once} at a time", flush=True)
    memory = describe_largest([job.config for job in jobs], at_once if local else None)
    if not memory.roomy:
        print(f"memory: {memory.text}", flush=True)
    if states["failed"] and any(job.config.retry == "none" for job in jobs):
        print(f"{states['failed']} failed earlier; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} already running")
    if local and states["done"] < len(jobs):
        warn_if_busy(jobs[0].config.hardware.device, own_jobs=states["running"])


def _failure(jobs: Sequence[Job], states: Counter[str], stopped: bool) -> SweepFailed:
    """Say why jobs are not done; the same command resumes all but those that failed."""
    messages, code = list[str](), AGAIN
    for job in jobs:
        status = job.store.status()
        failed = status["state"] == "failed" or status.get("exit_code") == FAILED
        if status["state"] != "done" and (failed or not stopped):
            messages.append(_explain(job))
            code = FAILED if failed and not stopped else code
    if stopped:
        text = ", ".join(f"{count} {state}" for state, count in states.items())
        again = "retry=none" if jobs[0].config.retry == "all" else "the same command"
        messages.append(f"stopped: of {len(jobs)} jobs {text}; {again} resumes")
    return SweepFailed("\n".join(messages), code)


def _explain(job: Job) -> str:
    """Return why a job is not done, with the last five lines of its newest console."""
    error = job.store.status().get("error")
    lines = [f"{state_of(job.store)}: {job.name}: {error or 'not finished'}"]
    attempts = job.store.folder / "attempts"  # on Ray each process has a console
    consoles = sorted(attempts.glob("*/console.0.log")) or sorted(attempts.glob("*/console.log"))
    if error and consoles:
        with suppress(OSError):  # another user's
            last = consoles[-1].read_text(errors="replace").splitlines()[-5:]
            lines += [f"    {line}" for line in [*last, f"({consoles[-1]})"]]
    return printable("\n".join(lines))
