"""Simulate 14 settings of the PODS paper x 10 seeds on 8, 64 and 512 GPUs; nothing is run.

    python experiments/cluster_plan/cluster.py [FOLDER]

It writes settings.csv, schedule.csv and schedule.png (which job uses which GPU when, with 0.01
failures per GPU-hour). A job lasts as long as its training clock; evaluation would come on top
and is not measured.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pods.analysis.cost.schedule import Failures, Job, Schedule, forecast, simulate
from pods.config.presets import composed
from pods.config.schema import Config

SETTINGS = (
    *(("n_scaling", f"nm=n{n}_m16") for n in (16, 32, 64, 128, 256)),
    *(("m_scaling", f"nm=n64_m{m}") for m in (8, 4, 2)),
    *((preset, f"arm={arm}") for preset in ("math_l40s", "llama_l40s") for arm in ("grpo", "pods")),
    ("gsm8k_h100x8", "arm=grpo_ga_x16"),
    ("gsm8k_h100x8", "arm=pods"),
)
SEEDS, MACHINE, GPUS = 10, 8, (8, 64, 512)
RATES = (0.0, 0.001, 0.01, 0.05)  # failures per GPU-hour
RESTART = 10 / 60  # hours


def job(preset: str, word: str) -> tuple[Job, Config]:
    """Return a run of one setting."""
    config = composed(preset, word)
    seconds, every = config.budget.train_seconds, config.checkpoint.every_train_seconds
    assert seconds and every
    name = f"{preset} {config.nm.n}→{config.nm.m}"
    return Job(name, seconds / 3600, config.hardware.processes, every / 3600), config


def table(jobs: Sequence[Job]) -> Iterator[dict[str, object]]:
    """Yield a row per order, number of GPUs and rate of failures."""
    orders = {"seed by seed": jobs, "large first": sorted(jobs, key=lambda one: -one.gpus)}
    for order, queue in orders.items():
        for gpus in GPUS:
            for rate in RATES:
                means = forecast(queue, gpus, Failures(rate, RESTART), MACHINE)
                numbers = {key: f"{value:.4g}" for key, value in means.items()}
                yield {"order": order, "failures": rate, **numbers}


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write a table as CSV."""
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)


def draw(schedules: Sequence[Schedule], path: Path) -> None:
    """Draw which job uses which GPU when: one row per GPU, one colour per setting."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(schedules), figsize=(11, 3.4), layout="constrained")
    names = list(dict.fromkeys(job.setting for job in schedules[0].jobs))
    colours = pyplot.get_cmap("tab20").colors
    for axis, schedule in zip(axes, schedules, strict=True):
        for attempt in schedule.attempts:
            axis.broken_barh(
                [(attempt.start, attempt.end - attempt.start)],
                (min(attempt.devices), len(attempt.devices)),
                facecolors=[colours[names.index(schedule.jobs[attempt.job].setting)]],
                hatch="///" if attempt.failed else None,
                edgecolor="white",
                linewidth=0.3 if schedule.gpus <= 64 else 0,
            )
        title = f"{schedule.gpus} GPUs, idle {100 * schedule.idle:.0f} %"
        limits = {"xlim": (0, schedule.wall), "ylim": (0, schedule.gpus)}
        axis.set(title=title, xlabel="hours", ylabel="GPU", **limits)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours[i]) for i in range(len(names))]
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize="x-small")
    figure.savefig(path, dpi=110)


def main(folder: Path) -> int:
    """Write the tables and the figure."""
    settings = [job(preset, word) for preset, word in SETTINGS]
    jobs = [one for _ in range(SEEDS) for one, _ in settings]
    settings_table = [
        {
            "setting": one.setting,
            "hours": f"{one.hours:.4g}",
            "gpus": one.gpus,
            "checkpoint_hours": f"{one.checkpoint_hours:.4g}",
            "model": config.model.name,
            "hardware": config.hardware.name,
        }
        for one, config in settings
    ]
    write(folder / "settings.csv", settings_table)
    rows = list(table(jobs))
    write(folder / "schedule.csv", rows)
    print(*(" ".join(f"{key}={value}" for key, value in row.items()) for row in rows), sep="\n")
    rough = Failures(0.01, RESTART)
    schedules = [
        simulate(jobs, gpus, rough, np.random.default_rng([gpus, 0]), MACHINE) for gpus in GPUS
    ]
    draw(schedules, folder / "schedule.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent))
