"""14 settings of the PODS paper x 10 seeds on 8, 64 and 512 GPUs: a simulation, nothing ran.

    python experiments/cluster_plan/cluster.py [FOLDER]

Writes settings.csv, schedule.csv and schedule.png (who has which GPU when, with 0.01 failures a
GPU-hour). A job lasts as long as its training clock: evaluation comes on top, and is not known.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pods.analysis.cost.cluster import Failures, Job, Schedule, forecast, simulate
from pods.config import Config
from pods.presets import composed

SETTINGS = (
    *(("n_scaling", f"nm=n{n}_m16") for n in (16, 32, 64, 128, 256)),
    *(("m_scaling", f"nm=n64_m{m}") for m in (8, 4, 2)),
    *((preset, f"arm={arm}") for preset in ("math_l40s", "llama_l40s") for arm in ("grpo", "pods")),
    ("gsm8k_h100x8", "arm=grpo_ga_x16"),
    ("gsm8k_h100x8", "arm=pods"),
)
SEEDS, MACHINE, GPUS = 10, 8, (8, 64, 512)
RATES = (0.0, 0.001, 0.01, 0.05)  # failures a GPU-hour
RESTART = 10 / 60  # hours


def job(preset: str, word: str) -> tuple[Job, Config]:
    """A run of one setting."""
    config = composed(preset, word)
    seconds, every = config.budget.train_seconds, config.checkpoint.every_train_seconds
    assert seconds and every
    name = f"{preset} {config.nm.n}→{config.nm.m}"
    return Job(name, seconds / 3600, config.hardware.processes, every / 3600), config


def table(jobs: Sequence[Job]) -> Iterator[dict[str, object]]:
    """A row an order, a number of GPUs and a rate of failures."""
    orders = {"seed by seed": jobs, "large first": sorted(jobs, key=lambda one: -one.gpus)}
    for order, queue in orders.items():
        for gpus in GPUS:
            for rate in RATES:
                found = forecast(queue, gpus, Failures(rate, RESTART), MACHINE)
                numbers = {key: f"{value:.4g}" for key, value in found.items()}
                yield {"order": order, "failures": rate, **numbers}


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write a table as CSV."""
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)


def draw(schedules: Sequence[Schedule], path: Path) -> None:
    """Draw who has which GPU when: a row a GPU, a colour a setting."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(schedules), figsize=(11, 3.4), layout="constrained")
    names = list(dict.fromkeys(job.setting for job in schedules[0].jobs))
    colours = pyplot.get_cmap("tab20").colors
    for axis, found in zip(axes, schedules, strict=True):
        for tried in found.tries:
            colour = colours[names.index(found.jobs[tried.job].setting)]
            axis.broken_barh([(tried.start, tried.end - tried.start)],
                             (min(tried.devices), len(tried.devices)), facecolors=[colour],
                             hatch="///" if tried.failed else None, edgecolor="white",
                             linewidth=0.3 if found.gpus <= 64 else 0)  # fmt: skip
        axis.set(title=f"{found.gpus} GPUs, idle {100 * found.idle:.0f} %", xlabel="hours",
                 ylabel="GPU", xlim=(0, found.wall), ylim=(0, found.gpus))  # fmt: skip
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours[i]) for i in range(len(names))]
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize="x-small")
    figure.savefig(path, dpi=110)


def main(folder: Path) -> int:
    """Make the tables and the figure."""
    made = [job(preset, word) for preset, word in SETTINGS]
    jobs = [one for _ in range(SEEDS) for one, _ in made]
    write(folder / "settings.csv", [
        {"setting": one.setting, "hours": f"{one.hours:.4g}", "gpus": one.gpus,
         "checkpoint_hours": f"{one.every:.4g}", "model": config.model.name,
         "hardware": config.hardware.name}
        for one, config in made
    ])  # fmt: skip
    rows = list(table(jobs))
    write(folder / "schedule.csv", rows)
    print(*(" ".join(f"{key}={value}" for key, value in row.items()) for row in rows), sep="\n")
    rough = Failures(0.01, RESTART)
    draw([simulate(jobs, gpus, rough, np.random.default_rng([gpus, 0]), MACHINE) for gpus in GPUS],
         folder / "schedule.png")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent))
