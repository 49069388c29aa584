"""Logs as other trainers leave them, each written by the library that defines its format."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

STEPS = range(0, 101, 10)
Rows = list[dict[str, float]]


def records() -> Iterator[tuple[str, int, Rows]]:
    """Six seeds of two methods; numbers are exact in single precision, which TensorBoard keeps."""
    for seed in range(6):
        for method, dt, more in (("grpo", 2.0, 0.0), ("pods", 1.5, 0.125)):
            noise = np.random.default_rng([seed, len(more.hex())]).integers(-9, 10, len(STEPS))
            yield method, seed, [
                {"step": step, "eval_reward": 0.25 + (0.25 + more) * step / 128 + one / 1024,
                 "step_time": dt if step else 0.0, "num_tokens": 64.0 * step}
                for step, one in zip(STEPS, noise.tolist(), strict=True)
            ]  # fmt: skip


def trl(folder: Path, method: str, seed: int, rows: Rows) -> None:
    """A run of transformers: each checkpoint has the log up to it, the last all of it."""
    from transformers import TrainerState

    for last in (len(rows) // 2, len(rows)):
        state = TrainerState()
        for row in rows[:last]:
            train = {key: row[key] for key in ("step_time", "num_tokens", "step")}
            state.log_history += [train, {"eval_reward": row["eval_reward"], "step": row["step"]}]
        state.global_step = rows[last - 1]["step"]
        at = folder / f"{method}-seed{seed}" / f"checkpoint-{state.global_step}"
        at.mkdir(parents=True)
        state.save_to_json(str(at / "trainer_state.json"))
        (at / "config.json").write_text('{"model_type": "llama"}')


def wandb(folder: Path) -> None:
    """Offline runs, each in a folder of its own; the service ends when all is written."""
    import wandb

    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True)
    at = {"project": "p", "mode": "offline", "dir": str(folder), "settings": settings}
    for method, seed, rows in records():
        config = {"trainer": {"seed": seed}, "method": method}
        run = wandb.init(reinit="create_new", config=config, **at)
        for row in rows:
            run.log({key: value for key, value in row.items() if key != "step"}, step=row["step"])
        run.finish()
    wandb.teardown()


def tensorboard(folder: Path, method: str, seed: int, rows: Rows) -> None:
    from tensorboardX import SummaryWriter

    at = folder / f"{method}-seed{seed}" / "runs" / "Nov25_10-00-00_a"
    with SummaryWriter(str(at)) as writer:
        for row in rows:
            for key in ("eval_reward", "step_time", "num_tokens"):
                writer.add_scalar(key, row[key], row["step"])


TRACKIO = """
import json, sys, trackio
for method, seed, rows in json.load(sys.stdin):
    trackio.init(project="p", name=f"{method}-seed{seed}", config={"seed": seed})
    for row in rows:
        trackio.log({key: row[key] for key in row if key != "step"}, step=row["step"])
    trackio.finish()
"""


def trackio(folder: Path) -> None:
    """All runs in one database; Trackio takes its folder from the environment as it is imported."""
    environment = os.environ | {"TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1"}
    content, python = json.dumps(list(records())), [sys.executable, "-c", TRACKIO]
    subprocess.run(python, input=content.encode(), env=environment, check=True, capture_output=True)


def verl(folder: Path, method: str, seed: int, rows: Rows) -> None:
    """As verl's file logger writes: the step, and the metrics in `data`."""
    lines = [{"step": row["step"], "data": {k: row[k] for k in row if k != "step"}} for row in rows]
    write_lines(folder / f"{method}-seed{seed}" / "metrics.jsonl", lines)


def write_lines(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def console(folder: Path, method: str, seed: int, rows: Rows) -> None:
    lines = [f"(TaskRunner pid=7) step:{row['step']} - eval_reward:{row['eval_reward']!r} - "
             f"step_time:np.float64({row['step_time']}) - num_tokens:{row['num_tokens']}"
             for row in rows]  # fmt: skip
    (folder / f"{method}_s{seed}.log").write_text("\n".join(["loading", *lines, "done"]))


def table(folder: Path) -> None:
    rows = [{"run": f"{m} seed {seed}", **row} for m, seed, rows in records() for row in rows]
    write_csv(folder / "export.csv", [[*rows[0]], *(row.values() for row in rows)])


def chart(folder: Path) -> None:
    """As W&B exports a chart."""
    columns = {f"{method} - seed{seed}": rows for method, seed, rows in records()}
    ends = ("", "__MIN", "__MAX")
    header = ["Step", *(f"{run} - eval_reward{end}" for run in columns for end in ends)]
    body = [[step, *(rows[i]["eval_reward"] for rows in columns.values() for _ in ends)]
            for i, step in enumerate(STEPS)]  # fmt: skip
    write_csv(folder / "chart.csv", [header, *body])


def write_csv(path: Path, rows: Iterable[Iterable]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


RUN_BY_RUN = {each.__name__: each for each in (trl, tensorboard, verl, console)}
AT_ONCE = {each.__name__: each for each in (wandb, trackio, table, chart)}


def write(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for run in [()] if name in AT_ONCE else records():
        (AT_ONCE | RUN_BY_RUN)[name](folder, *run)
