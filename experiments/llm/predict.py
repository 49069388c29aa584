"""Predict, before the runs, which arm is ahead at each machine's prices.

    python -m experiments.llm.predict STUDY OUT

Reads the pilot of `pods advise` in runs/STUDY, and writes the table OUT as
[prices](../prices/predict.py) does, with each card's cost of a step. Stratified 64→16 trains on the
rollouts of max-variance 64→16, and of it the law says nothing.
"""

import sys
from pathlib import Path

import pandas as pd
from experiments.prices.predict import progress_over, sign, sizes
from omegaconf import OmegaConf

from pods.analysis.loading.prices import step_cost
from pods.config.plan import question
from pods.config.price_card import PriceCard, read_card
from pods.config.schema import CONF
from pods.runs.store import RunStore, run_folders
from pods_lab.advise.advice import Pilot, read_pilot

PLAN = CONF / "plan/llm.yaml"
PROMPTS = int(OmegaConf.load(CONF / "experiment/llm.yaml").prompts_per_step)


def cost(arm: str, card: PriceCard) -> float:
    """Return what a step of an arm costs, at prices of rollouts.

    `KeyError`: the card has prices of tokens.
    """
    n, m = sizes(arm)
    step = {"generated_rollouts": [PROMPTS * n], "trained_rollouts": [PROMPTS * m]}
    return float(step_cost(card, pd.DataFrame(step))[0])


def row(text: str, pilot: Pilot) -> dict[str, object]:
    """Predict one contrast of the plan."""
    asked = question(text)
    arm = asked.arm.replace("->", "→")
    over = asked.baseline.replace("->", "→")
    card = read_card(str(asked.prices))
    progress = progress_over(arm, over, pilot)
    ratio = cost(arm, card) / cost(over, card)
    gain = progress / ratio
    return {
        "arm": arm,
        "over": over,
        "prices": card.name,
        "progress": progress,
        "cost": ratio,
        "gain": gain,
        "expected": sign(gain),
    }


def main(study: str, out: str) -> None:
    """Predict all contrasts of the plan, but for those of the stratified arm."""
    pilot = read_pilot([RunStore(run) for run in run_folders(Path("runs") / study)])
    contrasts = OmegaConf.load(PLAN).contrasts
    rows = [row(text, pilot) for text in contrasts if "stratified" not in text]
    table = pd.DataFrame(rows)
    table.to_csv(out, index=False, float_format="%.4g")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
