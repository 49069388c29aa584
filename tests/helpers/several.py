"""Steps of a run by one process, or by as many as were started. A script, not a module.

    python several.py OUT KEY=VALUE...    alone, or one of several as the environment says

OUT/gradients.safetensors has each optimizer update's whole gradient, before clipping, and
OUT/steps.json what each step was made of. OUT/policy and OUT/optimizer.safetensors are its end,
and OUT/again the same after a restore from there.
"""

import json
import sys
from pathlib import Path

import torch
from compose import composed
from safetensors.torch import save_file

from pods.policy import joined as messages
from pods.policy import update as room
from pods.policy.fsdp import full_tensor
from pods.policy.joined import join
from pods.policy.optimizer import trained_weights
from pods.policy.process_group import SINGLE_PROCESS
from pods.runs.freeze import freeze
from pods.runs.tracking.tracker import Tracker
from pods.system.machine import end_process, rank
from pods.system.signals import Stop
from pods.training import schedule
from pods.training.build import build_trainer
from pods.training.clock import TrainClock


def watch(found: dict[str, torch.Tensor]) -> None:
    """Keep every gradient as it is when all processes' parts are in it."""
    clip = torch.nn.utils.clip_grad_norm_

    def keep(parameters, limit, **settings):
        for i, parameter in enumerate(parameters):
            found[f"{len(found):05d}.{i}"] = full_tensor(parameter.grad).clone()
        return clip(parameters, limit, **settings)

    room.torch.nn.utils.clip_grad_norm_ = keep


def main(out: Path, *words: str) -> None:
    config = composed("tracking=none", f"runs_dir={out / 'runs'}", *words)
    stop = Stop()
    process_group = SINGLE_PROCESS if rank() is None else join("cpu", stop, out / "place")
    messages.BUCKET_ELEMENTS = 3000  # so that the tiny model's gradients take several messages
    gradients: dict[str, torch.Tensor] = {}
    store = process_group.on_main(freeze, config)
    made = build_trainer(config, store, None, Tracker(), stop, TrainClock(),
                         lambda: None, process_group)  # fmt: skip
    watch(gradients)
    steps = [
        {
            "places": [group.problem_index for group in step.groups],
            "kept": [group.kept.tolist() for group in step.groups],
            "tokens": [[r.completion_ids for r in g.group.rollouts] for g in step.groups],
            "advantages": [group.advantages.tolist() for group in step.groups],
            "stats": [getattr(step.update, name) for name in step.update.__slots__],
        }
        for step in schedule.steps(made.loop, 0, made.state)
    ]
    worker = made.worker
    worker.save(out)
    process_group.broadcast(None)  # it is written
    worker.restore(out)
    worker.engine.sync()
    worker.save(out / "again")
    assert all(p.grad is None for p in trained_weights(worker.optimizer))
    if process_group.is_main:
        save_file(gradients, out / "gradients.safetensors")
        (out / "steps.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    if rank() is not None:
        end_process(0)
