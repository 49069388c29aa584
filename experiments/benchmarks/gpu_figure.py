"""Draw gpu.py's two figures from its results: the arms at equal time, and a step by phases.

python experiments/benchmarks/gpu_figure.py FOLDER/results.json      # writes beside it
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PHASES = ("generate", "reward", "select", "update", "sync")


def result_of(facts: dict[str, Any], part: str) -> dict[str, Any]:
    """Return what a part has measured; empty if nothing."""
    return facts["parts"].get(part, {}).get("result") or {}


def figures(facts: dict[str, Any], out: Path) -> list[str]:
    """Draw what has been measured if matplotlib is installed; return the files' names."""
    drawn = []
    if find_spec("matplotlib") is not None:
        trained = {name: arm for name, arm in result_of(facts, "arms").get("arms", {}).items()
                   if arm["steps"]}  # fmt: skip
        steps = {f"{part}, {size}": row for part in ("step", "vllm")
                 for size, row in result_of(facts, part).get("steps", {}).items()}  # fmt: skip
        for name, draw, what in (("arms.png", _arms, trained), ("step.png", _steps, steps)):
            if what:
                draw(what, _card(facts)).savefig(out / name, dpi=150)
                drawn.append(name)
    return drawn


def _card(facts: dict[str, Any]) -> str:
    return ", ".join(facts["machine"]["gpus"]) or str(facts["machine"]["cpu"])


def _panels(count: int, title: str) -> Any:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    drawing, panels = pyplot.subplots(1, count, figsize=(9, 3.5), layout="constrained")
    drawing.suptitle(title, fontsize=10)
    return drawing, panels


def _arms(arms: dict[str, Any], card: str) -> Any:
    drawing, (left, right) = _panels(2, f"one run each: {card}")
    for name, arm in arms.items():
        seconds, rewards = ([row[key] for row in arm["steps"]]
                            for key in ("train_seconds", "reward"))  # fmt: skip
        left.plot(seconds, rewards, ".-", label=f"{name} {arm['n']}→{arm['m']}")
        ends = [arm[end] for end in ("before", "after") if arm.get(end)]
        right.errorbar(
            [end["train_seconds"] for end in ends], [100 * end["accuracy"] for end in ends],
            yerr=[100 * end["stderr"] for end in ends], marker="o", capsize=3,
        )  # fmt: skip
    left.set(xlabel="training time (s)", ylabel="mean reward of the n rollouts")
    right.set(xlabel="training time (s)", ylabel="accuracy (%, ±1 stderr over questions)")
    left.legend()
    return drawing


def _steps(steps: dict[str, Any], card: str) -> Any:
    drawing, panel = _panels(1, f"a step by phases, and the floors of two (lines): {card}")
    for place, row in enumerate(steps.values()):
        bottom = 0.0
        for index, phase in enumerate(PHASES):
            panel.bar(place, row[phase], bottom=bottom, color=f"C{index}",
                      label=phase if place == 0 else None)  # fmt: skip
            if phase in row["floors"]:
                height = bottom + row["floors"][phase]
                panel.plot([place - 0.4, place + 0.4], [height, height], "k-")
            bottom += row[phase]
    panel.set(ylabel="seconds", xticks=range(len(steps)), xticklabels=list(steps))
    panel.legend()
    return drawing


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_figure.py RESULTS.json")
    path = Path(sys.argv[1])
    print(*figures(json.loads(path.read_text()), path.parent))
