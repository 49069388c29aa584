"""Draw the figure of gpu.py: reward against training time, and accuracy before and after."""

import csv
import json
from argparse import Namespace
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ARMS = ("grpo", "pods")
COLUMNS = ("arm", "step", "train_seconds", "generate", "update", "reward", "correct")


def curves(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of each arm with at least one step."""
    results = {arm: facts["parts"].get(arm, {}).get("result") for arm in ARMS}
    return {arm: result for arm, result in results.items() if result and result["steps"]}


def table(facts: dict[str, Any], out: Path) -> str | None:
    """Write one line per step, and return the file's name, or None if there was no step."""
    arms = curves(facts)
    if not arms:
        return None
    with (out / "arms.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        rows.writeheader()
        for arm, result in arms.items():
            rows.writerows({"arm": arm, **step} for step in result["steps"])
    return "arms.csv"


def figure(options: Namespace, deadline: float) -> Iterator[dict[str, str]]:
    """Write the table and draw the figure from results.json, and yield the files' names."""
    facts = json.loads((options.out / "results.json").read_text())
    name = table(facts, options.out)
    if name is None:
        yield {"made": "nothing: no arm was trained"}
    elif find_spec("matplotlib") is None:
        yield {"made": f"{name}; no figure: matplotlib is not installed"}
    else:
        yield {"made": f"{name}, {draw(facts, options.out)}"}


def draw(facts: dict[str, Any], out: Path) -> str:
    """Draw both arms; needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    drawing, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    arms = curves(facts)
    for arm, result in arms.items():
        steps = result["steps"]
        seconds, rewards = ([step[key] for step in steps] for key in ("train_seconds", "reward"))
        left.plot(seconds, rewards, ".-", label=arm)
        ends = [result[end] for end in ("before", "after") if result.get(end)]
        right.errorbar(
            [end["train_seconds"] for end in ends], [100 * end["accuracy"] for end in ends],
            yerr=[100 * end["stderr"] for end in ends], marker="o", capsize=3, label=arm,
        )  # fmt: skip
    left.set(xlabel="training time (s)", ylabel="mean reward of the n rollouts")
    right.set(xlabel="training time (s)", ylabel="accuracy (%, ±1 stderr over questions)")
    left.legend()
    card = ", ".join(facts["machine"]["gpus"]) or facts["machine"]["cpu"]
    drawing.suptitle(f"{' and '.join(arms)}, one run each: {card}", fontsize=10)
    drawing.savefig(out / "arms.png", dpi=150)
    return "arms.png"
