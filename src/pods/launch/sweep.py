"""A sweep: freeze many runs, let a backend execute them, report, and draw the figure.

All configs are frozen before the first job starts. Jobs run seed by seed, so that a sweep that is
stopped has equally many seeds of every arm, and no job can take down another. If the study's plan
says `plan.stop=decided`, an arm gets no further seed once its contrasts are decided.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pods.analysis.loading.series_names import varied
from pods.config.schema import Config
from pods.launch.backend import Backend, Job, has_work_left, prepare
from pods.launch.decisions import decision_lines, undecided, unknown_arms
from pods.launch.figures import draw_figures
from pods.method.keep import try_functions
from pods.runs.freeze import check_budgets, has_ended
from pods.runs.identity import identity, identity_keys, run_folder
from pods.runs.plan import register
from pods.runs.status import state_of
from pods.runs.store import RunStore
from pods.system.console import lossy_console, printable
from pods.system.errors import AGAIN, FAILED
from pods.system.machine import warn_if_busy
from pods.system.text import short
from pods.tasks.load import check_data

CONSOLE_LINES = 5  # last lines of a console that are shown if a job is not done
CAUSES = 10  # reasons why jobs are not done, of which each is shown with such a console
NAMED = 8  # jobs that are not done for the same reason


class SweepFailed(Exception):
    """Some jobs are not done; the message lists them."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@lossy_console()
def run(configs: Sequence[Config], backend: Backend, figure: bool = True) -> None:
    """Execute all runs that have work left, print how they ended, and draw the figure if wanted.

    Raises:
        SweepFailed: some jobs failed, were stopped or are another process's; the others are done.
    """
    check_data(config.task for config in configs)
    try_functions(configs)
    check_budgets(configs)
    register(configs)
    for line in unknown_arms(configs):
        print(line, flush=True)
    try:
        if configs[0].plan.stop == "decided":
            jobs, stopped = _execute_until_decided(configs, backend)
        else:
            jobs = _freeze(configs)
            _announce(jobs, backend)
            _warn(jobs)
            stopped = _execute(jobs, backend)
    finally:
        backend.close()

    states = Counter(_state(job) for job in jobs)
    print(f"{states['done']} of {len(jobs)} jobs done")
    if states["done"] < len(jobs):
        raise _failure(jobs, states, stopped)
    if figure:
        draw_figures([job.store.folder for job in jobs])


def _execute(jobs: Sequence[Job], backend: Backend) -> bool:
    """Execute the jobs that have work left; return whether a signal has asked to stop."""
    waiting = [job for job in jobs if has_work_left(job.store, job.config)]
    return backend.run(waiting)


def _execute_until_decided(configs: Sequence[Config], backend: Backend) -> tuple[list[Job], bool]:
    """Execute the jobs seed by seed, each time only of arms that are not decided.

    Return the jobs that were asked for, and whether a signal has asked to stop.
    """
    jobs: list[Job] = []
    said: list[str] = []
    for seed in sorted({config.seed for config in configs}):
        still_open = undecided(configs)
        all_of_seed = [config for config in configs if config.seed == seed]
        chosen = [config for config in all_of_seed if config in still_open or _is_done(config)]
        of_seed = _freeze(chosen)
        jobs += of_seed
        if all(_state(job) == "done" for job in of_seed):
            continue

        print(f"seed {seed}:", end=" ")
        _announce(of_seed, backend)
        if of_seed == jobs:  # the first ones
            _warn(jobs)
        if _execute(of_seed, backend):
            return jobs, True
        news = [line for line in decision_lines(configs) if line not in said]
        print(*news, sep="\n", flush=True)
        said += news
    return jobs, False


def _is_done(config: Config) -> bool:
    return RunStore(run_folder(config, identity(config))).status()["state"] == "done"


def _freeze(configs: Sequence[Config]) -> list[Job]:
    """Freeze the runs of these configs, seed by seed; two configs may ask for the same run."""
    seed_major = sorted(configs, key=lambda config: config.seed)  # stable
    values = varied([(config, identity_keys(config)) for config in seed_major])
    jobs: dict[Path, Job] = {}
    for config, keys in zip(seed_major, values, strict=True):
        words = [f"{key.rpartition('.')[2]}={value}" for key, value in keys.items()]
        job = Job(store=prepare(config), config=config, varied=" ".join(words))
        jobs[job.store.folder] = job
    return list(jobs.values())


def _state(job: Job) -> str:
    """Return the state of a job's run; one that another command ended earlier has to go on."""
    state = state_of(job.store)
    ended_earlier = state == "done" and not has_ended(job.store, job.config.budget)
    return "preempted" if ended_earlier else state


def _announce(jobs: Sequence[Job], backend: Backend) -> None:
    """Say how many jobs there are, in which states, and how many run at once."""
    states = Counter(_state(job) for job in jobs)
    at_once = min(backend.at_once, len(jobs))
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    print(f"{count}, {states['done']} already done, {at_once} at a time", flush=True)

    if states["failed"] and any(job.config.retry == "none" for job in jobs):
        print(f"{states['failed']} failed earlier; retry=failed runs them again")
    if states["running"]:
        print(f"{states['running']} already running")


def _warn(jobs: Sequence[Job]) -> None:
    """Say that this machine is busy with other things, if jobs are about to run on it."""
    states = Counter(_state(job) for job in jobs)
    first = jobs[0].config
    if first.launch.on == "local" and states["done"] < len(jobs):
        warn_if_busy(first.hardware.device, own_jobs=states["running"])


def _failure(jobs: Sequence[Job], states: Counter[str], stopped: bool) -> SweepFailed:
    """Say why jobs are not done; the same command resumes all but those that failed."""
    alike: dict[_Cause, list[Job]] = defaultdict(list)
    code = AGAIN
    for job in jobs:
        status = job.store.status()
        if _state(job) == "done":
            continue
        failed = status["state"] == "failed" or status.get("exit_code") == FAILED
        if failed and not stopped:
            code = FAILED
        if failed or not stopped:
            cause = _Cause(_state(job), status.get("error"))
            alike[cause].append(job)

    messages = [_explain(cause, ended) for cause, ended in alike.items()]
    messages = short(messages, CAUSES, "more reasons; `pods status` lists all runs")
    if stopped:
        text = ", ".join(f"{count} {state}" for state, count in states.items())
        again = "retry=none" if jobs[0].config.retry == "all" else "the same command"
        messages.append(f"stopped: of {len(jobs)} jobs {text}; {again} resumes")
    return SweepFailed("\n".join(messages), code)


@dataclass(frozen=True)
class _Cause:
    """Why a job is not done."""

    state: str
    error: str | None


def _explain(cause: _Cause, jobs: Sequence[Job]) -> str:
    """Say why jobs are not done, with the end of the first one's newest console."""
    first = jobs[0]
    lines = [f"{cause.state}: {first.name}: {cause.error or 'not finished'}"]
    if cause.error:
        lines += [f"    {line}" for line in _end_of_console(first)]

    others = [" ".join(job.name.split()) for job in jobs[1:]]
    if others:
        names = ", ".join(short(others, NAMED))
        lines.append(f"    {len(others)} more for the same reason: {names}")
    return printable("\n".join(lines))


def _end_of_console(job: Job) -> list[str]:
    """Return the last lines of a job's newest console and its path, if there is one."""
    attempts = job.store.folder / "attempts"
    consoles = sorted(attempts.glob("*/console.log"))
    of_rank_0 = sorted(attempts.glob("*/console.0.log"))  # on Ray each process has a console
    found = of_rank_0 or consoles
    if not found:
        return []
    try:
        lines = found[-1].read_text(errors="replace").splitlines()
    except OSError:  # another user's
        return []
    shown = lines[-CONSOLE_LINES:]
    shown.append(f"({found[-1]})")
    return shown
