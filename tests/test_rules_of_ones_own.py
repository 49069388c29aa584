"""Rules as a user writes them: across groups, by log-prob, and sampling in rounds."""

import gzip
import json
import textwrap
from collections import defaultdict

import numpy as np
import pytest
import torch
from compose import composed
from running import run_here
from test_train import FakeEngine, loop

from pods.method.rules import across_groups, balanced, enough, keep_across, max_variance
from pods.types import Group

SHORT = ("budget.train_seconds=null", "budget.max_steps=2", "rollouts_every_steps=1", "nm.n=8",
         "nm.m=4", "prompts_per_step=3", "evaluation.questions=4", "evaluation.repeats=1",
         "tracking=none")  # fmt: skip
RULES = """
    import numpy as np
    from pods.method.rules import across_groups

    @across_groups
    def pooled(groups, m, rng):
        # CPPO as published: the largest |advantage| of all groups together
        scaled = [g.rewards - g.rewards.mean() for g in groups]
        scaled = [a / (s.rewards.std(ddof=1) + 1e-4) for a, s in zip(scaled, groups)]
        order = np.argsort(-np.abs(np.concatenate(scaled)), kind="stable")[: m * len(groups)]
        ends = np.cumsum([0, *map(len, scaled)])
        return [order[(order >= a) & (order < b)] - a for a, b in zip(ends, ends[1:])]

    def surprising(group, m, rng):
        # the completions that the policy found least likely
        total = [rollout.logprobs.sum() for rollout in group.rollouts]
        return np.argsort(total, kind="stable")[:m]
"""


@pytest.fixture
def rules(tmp_path, monkeypatch):
    (tmp_path / "their_rules.py").write_text(textwrap.dedent(RULES))
    monkeypatch.syspath_prepend(tmp_path)


def run(rule, tmp_path, *overrides):
    """Return the rows of the rollouts of each group of each step, and the lines of metrics."""
    store = run_here(f"sampler.rule=their_rules:{rule}", *SHORT, *overrides,
                     f"runs_dir={tmp_path / rule}")  # fmt: skip
    steps = []
    for path in sorted((store.folder / "rollouts").glob("step-*.jsonl.gz")):
        groups = defaultdict(list)
        for line in gzip.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            groups[row["group"]].append(row)
        steps.append(list(groups.values()))
    lines = [json.loads(line) for line in store.metrics_path.read_text().splitlines()]
    assert len(steps) == len(lines) == 2
    return steps, lines


def cppo_mask(advantages, kept):
    """What the authors' trainer leaves: all but the k smallest |advantage| of a process.

    As in github.com/lzhxmu/CPPO, src/open_r1/grpo_trainer_gsm.py:899-925, in our words.
    """
    absolute = torch.tensor(advantages).abs()
    pruned = torch.topk(absolute, k=len(advantages) - kept, largest=False).indices
    mask = torch.ones(len(advantages), dtype=torch.bool)
    mask[pruned] = False
    return mask


def test_cppo_pooled_over_a_step(rules, tmp_path):
    steps, lines = run("pooled", tmp_path, "advantage.baseline=full")
    sizes = set()
    for groups, line in zip(steps, lines, strict=True):
        scaled, kept = [], []
        for rows in groups:
            rewards = np.array([row["reward"] for row in rows])
            scaled += [(rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)]
            kept += [row["kept"] for row in rows]
            sizes.add(sum(row["kept"] for row in rows))
        theirs = cppo_mask(np.concatenate(scaled), 12)
        sized = np.abs(np.concatenate(scaled))
        # ties apart, the same sizes of advantage are kept
        assert sorted(sized[kept]) == pytest.approx(sorted(sized[theirs.numpy()]))
        assert line["trained_rollouts"] == 12 == sum(map(len, line["kept"]))
        for rows, of_group in zip(groups, scaled, strict=True):
            for row, value in zip(rows, of_group, strict=True):
                assert row["advantage"] is None or row["advantage"] == pytest.approx(value)
    assert len(sizes) > 1  # groups keep different numbers


def test_a_rule_by_logprob(rules, tmp_path):
    [first, _], _ = run("surprising", tmp_path, "rollouts_every_steps=1")
    for rows in first:
        assert sum(row["kept"] for row in rows) == 4
        longest = max(row["length"] for row in rows if row["kept"])
        assert longest >= max(row["length"] for row in rows) - 2  # long ones are less likely


def test_a_rule_across_groups_sees_the_groups_that_are_trained_on():
    seen = []

    @across_groups
    def first_of_each(groups, m, rng):
        seen.append([len(group.rollouts) for group in groups])
        return [[0, 1]] * len(groups)

    made, updates = loop("prompts_per_step=5", "group_filter=skip")
    object.__setattr__(made, "rule", first_of_each)
    step = next(iter(made.steps(0, made_selector())))
    # problems 0, 2, 4 have both rewards; 1 and 3 are always wrong
    assert seen == [[4, 4, 4]]
    assert [len(group.kept) for group in step.groups if group.trained] == [2, 2, 2]
    assert len(updates[0][0]) == 6


def made_selector():
    from pods.method.prompt_selection import Uniform

    return Uniform()


@pytest.mark.parametrize(
    "kept", [[[0], [4]], [[0, 0], []], [[0]], [[0, 1, 2], [0, 1]], None, [None, [0]], [[0.5], []]]
)
def test_what_a_rule_across_groups_must_not_return(kept):
    groups = [Group(np.zeros(4), np.zeros(4, bool), np.ones(4, int))] * 2
    message = "must return distinct indices of each of 2 groups, at most 4 in all"
    with pytest.raises(ValueError, match=message):
        keep_across(lambda groups, m, rng: kept, groups, 2, np.random.default_rng(0))


def group(*rewards):
    values = np.array(rewards, float)
    return Group(values, values == 1, np.ones(len(values), int))


def test_when_a_group_has_enough():
    assert not enough(balanced, group(1, 0, 0), 4)  # fewer than m
    assert not enough(balanced, group(1, 0, 0, 0), 4) and enough(balanced, group(1, 0, 0, 1), 4)
    assert enough(balanced, group(1, 0, 0), 3) and not enough(balanced, group(1, 1, 0), 3)
    # half a correct answer is neither the highest nor the lowest reward
    assert not enough(max_variance, group(0, 0.5, 1, 1), 4)
    assert enough(max_variance, group(0, 0.5, 1, 1, 0), 4)
    assert not enough(max_variance, group(1, 1, 1, 1), 4)
    assert enough(max_variance, group(0, 1, 1), 3) and enough(max_variance, group(0, 0, 1), 3)
    # a third 1.2 would give a larger variance than 0.1 does
    assert not enough(max_variance, group(0, 0, 1.2, 1.2, 0.1), 5)


class Scripted(FakeEngine):
    """Right answers come only in a prompt's second round, and never for prompt 1."""

    def generate(self, request, on_completion=None):
        drawn = super().generate(request)
        first = len(self.calls) == 1
        return (
            [
                [
                    self.rollout((1,) if first or prompt[0] == 1 else (0,), i)
                    for i in range(request.n)
                ]
                for prompt in request.prompts
            ]
            if drawn
            else []
        )


def test_rounds_by_hand():
    """n = 8 in rounds of 2 for m = 2: prompt 0 ends after two rounds, prompt 1 after all four."""
    made, updates = loop("nm.n=8", "nm.round=2", "sampler=balanced", "budget.max_steps=1",
                         "budget.train_seconds=null")  # fmt: skip
    object.__setattr__(made, "engine", Scripted())
    object.__setattr__(made, "rule", balanced)
    # prompts come in the order of the seed: ask for problems 0 and 1
    indices = [0, 1]
    rollouts, grades, nonfinite = made.sample_rounds(1, 0, indices)
    assert nonfinite is None
    assert [len(of_prompt) for of_prompt in rollouts] == [4, 8]
    assert [len(call[0]) for call in made.engine.calls] == [2, 2, 1, 1]
    assert [sum(g.correct for g in of_prompt) for of_prompt in grades] == [1, 0]
    seeds = [seed for call in made.engine.calls for seed in call[3]]
    assert len(set(seeds)) == len(seeds) == 6
    alone, _ = loop()
    assert made.engine.calls[0][3] == [alone.rollout_seed(1, i, 0) for i in (0, 1)]
    assert updates == []


def test_a_run_in_rounds_is_charged_for_what_it_sampled(tmp_path):
    store = run_here("arm=reinforce_ada", "nm.round=4", *SHORT, f"runs_dir={tmp_path}")
    for line in map(json.loads, store.metrics_path.read_text().splitlines()):
        sizes = [len(kept) for kept in line["kept"]]
        assert sizes == [4, 4, 4] and 12 <= line["generated_rollouts"] <= 24
        assert line["generated_rollouts"] % 4 == 0 and line["trained_rollouts"] == 12


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("nm.round=65",), "nm.round=65: must be at most nm.n=64"),
        (("sampler=random", "nm.round=8"),
         "nm.round=8: must be null where sampler.rule=random: only max_variance and balanced"),
    ],
)  # fmt: skip
def test_rounds_that_nothing_can_stop_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        composed(*overrides)
