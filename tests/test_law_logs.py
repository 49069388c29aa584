"""The law with a floor, held against Adam, and the numbers of the authors' logs."""

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from compose import ROOT

LAW = runpy.run_path(str(ROOT / "experiments/law/formula.py"))
ADAM = (100 - 1.25, 50.0, 2.0, 1.0)  # by hand: floor lr x noise / 4, rate lr / noise = 0.002


def excess_loss(signal, noise, steps, size=2000):
    """The mean loss of quadratics, in percent, that Adam lowers by gradients of so much noise."""
    draw, losses = torch.Generator().manual_seed(0), []
    x = torch.ones(size, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=0.01)
    for _ in range(steps):
        losses.append(50 * float((x.detach() ** 2).mean()))
        x.grad = signal * x.detach() + noise * torch.randn(size, generator=draw)
        optimizer.step()
    return np.array(losses)


@pytest.mark.parametrize(("signal", "noise", "gain"), [(1, 5, 1), (1, 10, 0.5), (2, 5, 2)])
def test_under_adam_an_arm_of_more_progress_is_faster_and_levels_off_lower(signal, noise, gain):
    losses = excess_loss(signal, noise, 3000)
    assert losses[2500:].mean() == pytest.approx(1.25 / gain, rel=0.08)
    expected = LAW["curve"](np.arange(3000), gain, ADAM)
    np.testing.assert_allclose(losses, 100 - expected, rtol=0.12)
    for target in (70, 90, 96):  # half a percent of the way to a few percent in steps
        reached = float((100 - losses >= target).argmax())
        assert reached == pytest.approx(LAW["steps_to"](target, gain, ADAM), rel=0.1)
    assert LAW["steps_to"](99, 0.5, ADAM) == np.inf  # its floor is 2.5


def test_the_floor_comes_out_of_two_arms_of_known_gains():
    steps, law = np.linspace(200, 2500, 12), (81.0, 78.0, 0.9, 0.3)
    seen = [(steps, LAW["curve"](steps, gain, law)) for gain in (1.0, 1.3)]
    found, off = LAW["fit"](seen, (1.0, 1.3))
    assert found == pytest.approx(law, rel=1e-3) and abs(off).max() < 1e-4


@pytest.mark.realdata
@pytest.mark.parametrize(("n", "target"), [(64, 80), (256, 81), (32, 79)])
def test_steps_of_the_logs_by_another_way(n, target):
    folder, medians = Path(os.environ["PODS_REALDATA"]) / "pods_release", []
    base = np.mean(json.loads((folder / "base-qwen.json").read_text())["gsm8k"]["ans_acc"])
    for arm in (16, n):
        taken = []
        for path in folder.glob(f"Instruct-GSM8K-512-{arm}-16-Run*.json"):
            blocks = json.loads(path.read_text()).items()
            log = {int(name.split("-")[1]): block["gsm8k"]["ans_acc"] for name, block in blocks}
            points = [(0, base), *((step, np.mean(log[step])) for step in sorted(log))]
            at = next(i for i, (_, right) in enumerate(points) if right >= target / 100)
            steps, right = zip(*points[at - 1 : at + 1], strict=True)
            taken.append(np.interp(target / 100, right, steps))
        medians.append(np.median(taken))
    table = pd.read_csv(ROOT / "experiments/law/logs.csv").set_index(["arm", "quantity"])
    row = table.loc[f"GSM8K pods {n}→16", f"times fewer steps to {target} %"]
    assert row.reached == row.baseline_reached == 10
    assert row.ratio == pytest.approx(medians[0] / medians[1], rel=0.01)
