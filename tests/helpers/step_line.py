"""A step's line in metrics.jsonl, worked by hand, and what it is compared by."""

import json
import math

import pytest

SECONDS = {"generate": 2.0, "reward": 0.25, "select": 0.125, "update": 1.0, "sync": 0.5}
CPU_SECONDS = {"generate": 1.5, "reward": 0.0625, "select": 0.125, "update": 1.75, "sync": 0.25}
LINE = {
    "step": 7, "nonfinite": None, "train_seconds": 12.5,
    **{f"seconds/{phase}": seconds for phase, seconds in SECONDS.items()},
    **{f"cpu_seconds/{phase}": seconds for phase, seconds in CPU_SECONDS.items()},
    "prompts": ["a", "b", "c", "d", "e"], "epoch": 3, "sampling_batches": 2, "sampled_prompts": 5,
    "passed_over_prompts": 9, "rollouts_saved": 16,  # 4 problems of 4 rollouts
    "generated_rollouts": 20, "trained_rollouts": 6,  # two of a, c and e
    "zero_variance_fraction": 0.4,  # b, d
    "all_right_fraction": 0.2,  # b
    "none_right_fraction": 0.6,  # c, d, e
    "selector/p_easy": 0.375, "selector/p_hard": 0.625,
    "reward": 0.4625,  # 3.5 + 4 + 1 + 0 + 0.75 of 20
    "reward_std": (math.sqrt(0.453125) + 0.25 + 0.75 * math.sqrt(3) / 4) / 5,
    "correct": 0.3,  # 2 + 4 of 20
    "format": 0.4,  # 2 + 3 + 2 + 0 + 1
    "format_reward": 0.125,  # 1 + 0 + 1 + 0 + 0.5 of 20
    "tags_reward": 0.0375,  # 0.5 + 0.25 of 20
    "no_answer": 0.2,  # 1 + 0 + 1 + 2
    "timeouts": 2,
    "length": 6.8,  # 20 + 8 + 16 + 64 + 28 of 20
    "truncated": 0.35,  # 1 + 0 + 1 + 4 + 1
    "generated_tokens": 136,
    "kept_reward": 0.45,  # 1.75 + 2 + 0 + 0 + 0.75 of 10
    "kept_reward_std": 0.25,  # 0.875 + 0 + 0 + 0 + 0.375 of 5
    "kept_reward_variance": (0.875**2 + 0 + 0.375**2) / 3,  # of a, c, e
    "zero_variance_kept": 3,  # b, c, d
    "skipped_groups": 2,
    "kept_length": 6.9,  # 11 + 4 + 6 + 32 + 16 of 10
    "trained_tokens": 33,  # 11 + 6 + 16
    "loss": 0.5, "grad_norm": 1.5, "clip_fraction": 0.25, "kl": 0.125, "logprob_gap": 0.0625,
    "logprob_gap_mean": 0.03125, "importance_mean": 0.875, "importance_ess": 0.625,
    "importance_cut": 0.75, "entropy": 0.375, "lr": 0.001, "norms": [], "kept_projection": 0.96875,
    "rollouts_per_group": [4, 4, 4, 4, 4],
    "kept": [[0, 2], [0, 1], [0, 2], [2, 3], [0, 3]],
}  # fmt: skip


def assert_equal(line, expected):
    """Key by key, numbers as floats may round; and as it is read back from its file."""
    assert line.keys() == expected.keys()
    for key, value in expected.items():
        exact = isinstance(value, list | str) or value is None
        assert line[key] == (value if exact else pytest.approx(value, rel=1e-12)), key
    assert json.loads(json.dumps(line, allow_nan=False)) == line
