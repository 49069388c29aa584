"""Memory a GPU and the floor of a step, of the papers' settings: arithmetic, nothing is measured.

    python experiments/benchmarks/on_paper.py

Sizes are those of the presets' configs; peaks are the makers' (`analysis/cost/floor.py`); the
published seconds are of other code, on the same cards.
"""

import sys
from collections.abc import Iterator, Sequence

from pods.analysis.cost.floor import CARDS, step_floor
from pods.analysis.cost.step_time import step_time
from pods.memory.plan import Plan, make_plan
from pods.memory.shape import read_shape
from pods.memory.weights import GIB
from pods.presets import composed

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
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def memory() -> Iterator[str]:
    """A column a setting, a row a part."""
    plans: list[Plan] = []
    rooms = []
    for preset, *words in MEMORY.values():
        config = composed(preset, *words)
        rooms.append(CARDS[config.hardware.name].memory)
        plans.append(make_plan(config, read_shape(config.model), device_memory=rooms[-1]))
    yield row(["GiB a GPU", *MEMORY])
    yield row(["---"] * (1 + len(MEMORY)))
    for kind in ("held", "generate", "update"):
        parts = dict.fromkeys(part for plan in plans for part in getattr(plan, kind))
        for part in parts:
            sizes = [getattr(plan, kind).get(part) for plan in plans]
            cells = ["" if size is None else f"{size / GIB:.1f}" for size in sizes]
            yield row([part if kind == "held" else f"to {kind}: {part}", *cells])
    yield row(["**at most**", *(f"**{plan.peak / GIB:.1f}**" for plan in plans)])
    yield row(["the card has", *(f"{room / GIB:.0f}: " + ("fits" if plan.peak <= room else
               "**does not fit**") for plan, room in zip(plans, rooms, strict=True))])  # fmt: skip


def floors() -> Iterator[str]:
    """A row an arm: its floor at some lengths, and the published seconds."""
    yield row(["setting", *(f"{tokens} tokens" for tokens in TOKENS), "published", "over the "
               "floor at 256"])  # fmt: skip
    yield row(["---"] * (3 + len(TOKENS)))
    for preset, *words in STEPS:
        config = composed(preset, *words)
        shape, card = read_shape(config.model), CARDS[config.hardware.name]
        found = {tokens: step_floor(config, shape, card, tokens) for tokens in TOKENS}
        known = step_time(config, None).seconds
        nm = config.nm
        name = f"{preset}, {config.arm} {nm.n}→{nm.m}" + (f" x{nm.groups}" * (nm.groups > 1))
        parts = [f"{f.step:.2f} ({f.generate:.2f} + {f.update:.2f})" for f in found.values()]
        yield row([name, *parts, f"{known:g}", f"{known / found[256].step:.1f} x"])


def main() -> int:
    """Print both tables."""
    print(*memory(), "", *floors(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
