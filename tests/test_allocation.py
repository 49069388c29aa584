"""Rollouts of each prompt by a function of one's own: checked, by hand, and in a run."""

import json

import pytest
from compose import ROOT
from fake_loop import loop
from running import ONE_STEP, run_here

from pods.method.prompt_selection import Uniform, allocate

SHORT = (*ONE_STEP, "budget.max_steps=3", "nm.n=8", "task.train_size=4", "checkpoint=every100")


def unseen_first(seen, n, m, step):
    # all but 2 of each other go to the first prompt that was sampled least
    least = min(range(len(seen)), key=lambda i: seen[i][0])
    return [(n - 2) * len(seen) + 2 if i == least else 2 for i in range(len(seen))]


def wrong(seen, n, m, step):
    return [n + 1] * len(seen) if step == 1 else [1] * len(seen)


def test_it_is_given_what_was_seen_and_checked():
    selector = Uniform(seen={"3": (8, 2)})
    assert allocate(None, Uniform(), [3, 1], 4, 2, 1) == [4, 4]
    assert allocate("test_allocation:unseen_first", selector, [3, 1], 4, 2, 1) == [2, 6]
    for step, got in ((1, "5, 5"), (2, "1, 1")):
        with pytest.raises(ValueError, match=rf"wrong: must return 2 .* 8 in all, got \[{got}\]"):
            allocate("test_allocation:wrong", selector, [3, 1], 4, 2, step)
    text, names = (ROOT / "src/pods/tasks/README.md").read_text(), {}
    exec(text.split("# my_allocations.py\n")[1].split("```")[0], names)
    assert names["uncertain_first"]([(8, 4), (8, 8), (0, 0)], 8, 4, 1) == [9, 5, 9]


def test_a_step_by_hand():
    made, _ = loop()
    made_of = made.generate_and_grade(1, 0, [0, 1], [6, 2])  # each rollout has a seed of its own
    asked = [[rollout.prompt_ids for rollout in one.group.rollouts] for one in made_of]
    assert asked == [[(0,)] * 6, [(1,)] * 2] and [len(one.grades) for one in made_of] == [6, 2]
    [(prompts, n, _, seeds)] = made.engine.calls
    assert (len(prompts), n, len({*seeds})) == (8, 1, 8)


def test_a_run_keeps_m_of_each_prompt_and_remembers_what_it_saw(tmp_path):
    words = ("nm.allocation=test_allocation:unseen_first", f"runs_dir={tmp_path}")
    for m in (2, 8):
        store = run_here(*SHORT, *words, f"nm.m={m}", *["sampler=all"] * (m == 8))
        lines = [*map(json.loads, store.metrics_path.read_text().splitlines())]
        kept = {len(kept) for line in lines for kept in line["kept"]}
        assert kept == ({2} if m == 2 else {2, 14})
    assert [line["rollouts_per_group"] for line in lines[:2]] == [[14, 2], [14, 2]]
    assert sorted(lines[2]["rollouts_per_group"]) == [2, 14]
    seen = json.loads((store.checkpoint(3) / "selection.json").read_text())["seen"]
    assert sum(rollouts for rollouts, _ in seen.values()) == 3 * 16
