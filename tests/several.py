"""Steps of a run by one process, or by as many as were started. A script, not a module.

    python several.py OUT KEY=VALUE...                               alone
    python -m pods.torchrun FOLDER N several.py OUT KEY=VALUE...     together
    torchrun ... several.py OUT KEY=VALUE...                         together, as by hand

OUT/gradients.safetensors has each optimizer update's whole gradient, before clipping, and
OUT/steps.json what each step was made of. OUT/policy and OUT/optimizer.safetensors are its end,
and OUT/again the same after a restore from there.
"""

import json
import sys
import time
from pathlib import Path

import torch
from compose import composed
from safetensors.torch import save_file

from pods.assemble import build, build_worker, load_data
from pods.crew import follow
from pods.policy import update as room
from pods.policy.optimizer import trained
from pods.policy.orders import Orders
from pods.policy.sharding import whole
from pods.policy.team import ALONE, join
from pods.runs.frozen import freeze
from pods.runs.meter import Meter
from pods.runs.tracking import NoTracker
from pods.stop import Stop
from pods.torchrun import leave, rank


def watch(optimizer: torch.optim.AdamW, found: dict[str, torch.Tensor]) -> None:
    """Keep every gradient as it is when all processes' parts are in it."""
    clip = torch.nn.utils.clip_grad_norm_

    def keep(parameters, limit):
        for i, parameter in enumerate(parameters):
            found[f"{len(found):05d}.{i}"] = whole(parameter.grad).clone()
        return clip(parameters, limit)

    room.torch.nn.utils.clip_grad_norm_ = keep


def main(out: Path, *words: str) -> None:
    config = composed("tracking=none", f"runs_dir={out / 'runs'}", *words)
    team = ALONE if rank() is None else join("cpu")
    gradients: dict[str, torch.Tensor] = {}
    if not team.leads:
        orders = Orders(team)
        worker = build_worker(config, load_data(config, orders.look), orders.look, team)
        watch(worker.optimizer, gradients)
        follow(worker, orders)
        return
    store = freeze(config)
    with store.lock() as lock:
        made = build(config, store, lock, NoTracker(), Stop(), time.perf_counter, Meter(),
                     lambda: None, team)  # fmt: skip
    watch(made.crew.worker.optimizer, gradients)
    with made.crew.at_work():
        steps = [
            {
                "places": [group.place for group in step.groups],
                "kept": [group.kept.tolist() for group in step.groups],
                "tokens": [[r.completion_ids for r in group.rollouts] for group in step.groups],
                "advantages": [group.advantages.tolist() for group in step.groups],
                "stats": [getattr(step.update, name) for name in step.update.__slots__],
            }
            for step in made.loop.steps(0, made.selector)
        ]
        made.crew.save(out)
        made.crew.restore(out)
        made.crew.sync()
        made.crew.save(out / "again")
    save_file(gradients, out / "gradients.safetensors")
    (out / "steps.json").write_text(json.dumps(steps))
    assert all(p.grad is None for p in trained(made.crew.worker.optimizer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    if rank() is not None:
        leave(0)
