"""Compute memory per GPU and the least time per step of the papers' settings, without measuring.

    python experiments/benchmarks/on_paper.py

Sizes are those of the presets' configs; peaks are the makers' (`analysis/cost/roofline.py`); the
published seconds were measured with other code on the same GPUs.
"""

import sys
from collections.abc import Iterator, Sequence

from pods.analysis.cost.roofline import GPUS, step_bound
from pods.analysis.cost.step_time import step_time
from pods.config.presets import composed
from pods.memory.plan import Plan, make_plan
from pods.memory.shape import GIB, read_shape

MEMORY = {
    "3B, LoRA, L40S": ("gsm8k_l40s", "arm=pods"),
    "3B, all weights, 8 H100": ("gsm8k_h100x8", "arm=pods"),
    "7B, all weights, 8 A100": ("gsm8k_a100x8", "arm=pods"),
}
STEPS = (
    ("gsm8k_l40s", "arm=grpo"),
    ("gsm8k_l40s", "arm=pods"),
    ("gsm8k_h100x8", "arm=grpo_ga_x16"),
    ("gsm8k_h100x8", "arm=pods"),
    ("gsm8k_a100x8", "arm=grpo_ga_x16"),
    ("gsm8k_a100x8", "arm=pods"),
)
TOKENS = (128, 256, 512)  # mean length of a completion


def row(cells: Sequence[str]) -> str:
    """Format a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def memory() -> Iterator[str]:
    """Yield the memory table: a column per setting, a row per part."""
    plans: list[Plan] = []
    capacities = []
    for preset, *words in MEMORY.values():
        config = composed(preset, *words)
        capacities.append(GPUS[config.hardware.name].memory)
        plans.append(make_plan(config, read_shape(config.model), device_memory=capacities[-1]))
    yield row(["GiB per GPU", *MEMORY])
    yield row(["---"] * (1 + len(MEMORY)))
    for kind in ("held", "generate", "update"):
        parts = dict.fromkeys(part for plan in plans for part in getattr(plan, kind))
        for part in parts:
            sizes = [getattr(plan, kind).get(part) for plan in plans]
            cells = ["" if size is None else f"{size / GIB:.1f}" for size in sizes]
            yield row([part if kind == "held" else f"to {kind}: {part}", *cells])
    yield row(["**at most**", *(f"**{plan.peak / GIB:.1f}**" for plan in plans)])
    verdicts = [
        f"{capacity / GIB:.0f}: " + ("fits" if plan.peak <= capacity else "**does not fit**")
        for plan, capacity in zip(plans, capacities, strict=True)
    ]
    yield row(["the GPU has", *verdicts])


def bounds() -> Iterator[str]:
    """Yield the table of lower bounds: a row per arm, at some lengths, beside published seconds."""
    yield row(["setting", *(f"{tokens} tokens" for tokens in TOKENS), "published", "ratio to the "
               "lower bound at 256"])  # fmt: skip
    yield row(["---"] * (3 + len(TOKENS)))
    for preset, *words in STEPS:
        config = composed(preset, *words)
        shape, gpu = read_shape(config.model), GPUS[config.hardware.name]
        at = {tokens: step_bound(config, shape, gpu, tokens) for tokens in TOKENS}
        published = step_time(config, None).seconds
        nm = config.nm
        name = f"{preset}, {config.arm} {nm.n}→{nm.m}" + (f" x{nm.groups}" * (nm.groups > 1))
        parts = [f"{b.step:.2f} ({b.generate:.2f} + {b.update:.2f})" for b in at.values()]
        yield row([name, *parts, f"{published:g}", f"{published / at[256].step:.1f} x"])


def main() -> int:
    """Print both tables."""
    print(*memory(), "", *bounds(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
