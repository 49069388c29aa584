"""Rollouts of each prompt by a function of one's own: checked, by hand, and in a run."""

import json

import pytest
from compose import ROOT
from fake_loop import loop
from running import run_here

from pods.method.prompt_selection import Uniform, allocate

SHORT = ("budget.train_seconds=null", "budget.max_steps=3", "prompts_per_step=2", "nm.n=8",
         "nm.m=2", "tracking=none", "evaluation.questions=4", "evaluation.repeats=1",
         "task.train_size=4", "checkpoint=every100")  # fmt: skip


def unseen_first(seen, n, m, step):
    """All that can be spared go to the first prompt that was sampled least."""
    least = min(range(len(seen)), key=lambda i: seen[i][0])
    return [n * len(seen) - m * (len(seen) - 1) if i == least else m for i in range(len(seen))]


def too_much(seen, n, m, step):
    return [n + 1] * len(seen)


def negative(seen, n, m, step):
    return [-n] * len(seen)


def test_it_is_given_what_was_seen_and_checked():
    selector = Uniform(seen={"3": (8, 2)})
    assert allocate(None, Uniform(), [3, 1], 4, 2, 1) == [4, 4]
    assert allocate("test_allocation:unseen_first", selector, [3, 1], 4, 2, 1) == [2, 6]
    for name, got in {"too_much": "5, 5", "negative": "-4, -4"}.items():
        with pytest.raises(ValueError, match=rf"{name}: must return 2 .* 8 in all, got \[{got}\]"):
            allocate(f"test_allocation:{name}", selector, [3, 1], 4, 2, 1)
    text, names = (ROOT / "src/pods/tasks/README.md").read_text(), {}
    exec(text.split("# my_allocations.py\n")[1].split("```")[0], names)
    assert names["uncertain_first"]([(8, 4), (8, 8), (0, 0)], 8, 4, 1) == [9, 5, 9]


def test_a_step_by_hand():
    """Prompts 0 and 1 get 6 and 2 rollouts, each with a seed of its own, in one call."""
    made, _ = loop()
    made_of = made.generate_and_grade(1, 0, [0, 1], [6, 2])
    asked = [[rollout.prompt_ids for rollout in one.group.rollouts] for one in made_of]
    assert asked == [[(0,)] * 6, [(1,)] * 2] and [len(one.grades) for one in made_of] == [6, 2]
    [(prompts, n, _, seeds)] = made.engine.calls
    assert (len(prompts), n, len({*seeds})) == (8, 1, 8)


def test_a_run_keeps_m_of_each_prompt_and_remembers_what_it_saw(tmp_path):
    words = ("nm.allocation=test_allocation:unseen_first", f"runs_dir={tmp_path}")
    store = run_here(*SHORT, *words)
    lines = [*map(json.loads, store.metrics_path.read_text().splitlines())]
    assert [line["rollouts_per_group"] for line in lines[:2]] == [[14, 2], [14, 2]]
    assert sorted(lines[2]["rollouts_per_group"]) == [2, 14]
    assert all([len(kept) for kept in line["kept"]] == [2, 2] for line in lines)
    seen = json.loads((store.checkpoint(3) / "selection.json").read_text())["seen"]
    assert sum(rollouts for rollouts, _ in seen.values()) == 3 * 16
