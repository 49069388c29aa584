"""Rules and prompt selectors as a user writes them."""

import json
import sys
import textwrap
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from compose import ROOT, composed
from fake_loop import loop, steps_of
from rows import table
from running import ONE_STEP, run_here

import run as entry_point
from pods.launch import sweep
from pods.method.grpo import advantages
from pods.method.keep import keep, own_advantages, try_functions
from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import Uniform, start
from pods.method.rules import across_groups
from pods.runs.files import read_lines
from pods.runs.identity import identity
from pods.types import Group

SHORT = (*ONE_STEP, "budget.max_steps=2", "rollouts_every_steps=1", "nm.n=8", "nm.m=4",
         "prompts_per_step=3")  # fmt: skip
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

    def by_place(group, kept):
        values = kept - group.lengths.mean()
        kept[:] = 0  # a copy
        return values
"""

SELECTORS = """
    def hard(candidates, seen, count, rng):
        rate = {p: right / rollouts for p, (rollouts, right) in seen.items()}
        return sorted(candidates, key=lambda p: (rate.get(p, 0.5), p))[:count]

    noted = []

    def drawn(candidates, seen, count, rng):
        noted.append(rng.integers(2**62))
        return rng.choice(candidates, count, replace=False)

    def one(candidates, seen, count, rng):
        return candidates[:1] * count
"""

BAD = """
    def short(group, m):
        return range(m)

    def fails(group, m, rng, step=1):
        return group.rollouts[0].text.split()[0]

    def wrong(*arguments):
        return [0] * 8

    def silent(problem, completion):
        return None
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    codes = {"their_rules": RULES, "their_selectors": SELECTORS, "bad": BAD}
    for name, code in codes.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)


def of_the_readme(module):
    """What an example module of the README defines."""
    text, names = (ROOT / "src/pods/tasks/README.md").read_text(), {}
    exec(text.split(f"# {module}.py\n")[1].split("```")[0], names)
    return names


def run(rule, tmp_path, *overrides):
    """Return the rows of the rollouts of each group of each step, and the lines of metrics."""
    store = run_here(f"sampler.rule=their_rules:{rule}", *SHORT, *overrides,
                     f"runs_dir={tmp_path / rule}")  # fmt: skip
    steps = []
    for path in sorted((store.folder / "rollouts").glob("step-*.jsonl.gz")):
        groups = defaultdict(list)
        for row in read_lines(path):
            groups[row["group"]].append(row)
        steps.append(list(groups.values()))
    lines = read_lines(store.metrics_path)
    assert len(steps) == len(lines) == 2
    return steps, lines


def cppo_mask(advantages, kept):
    """What the authors' trainer leaves: all but the k smallest |advantage| of a process.

    As in github.com/lzhxmu/CPPO, src/open_r1/grpo_trainer_gsm.py:899-925, in our words.
    """
    absolute = torch.tensor(advantages).abs()
    pruned = torch.topk(absolute, k=len(advantages) - kept, largest=False).indices
    return torch.ones(len(advantages), dtype=torch.bool).index_fill(0, pruned, False)


def test_cppo_pooled_over_a_step(tmp_path):
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


def test_a_rule_by_logprob_and_advantages_by_place(tmp_path):
    [first, _], _ = run("surprising", tmp_path, "advantage.function=their_rules:by_place")
    for rows in first:
        mean = np.mean([row["length"] for row in rows])
        assert all(row["advantage"] == i - mean for i, row in enumerate(rows) if row["kept"])
        assert sum(row["kept"] for row in rows) == 4
        longest = max(row["length"] for row in rows if row["kept"])
        assert longest >= max(row["length"] for row in rows) - 2  # long ones are less likely


def test_a_rule_across_groups_sees_the_groups_that_are_trained_on():
    seen = []

    @across_groups
    def first_of_each(groups, m, rng):
        seen.append(([len(group.rollouts) for group in groups], rng.integers(2**62)))
        return [[0, 1]] * len(groups)

    made, updates = loop("prompts_per_step=5", "group_filter=skip", "budget.max_steps=3")
    steps = list(steps_of(replace(made, rule=first_of_each), 0, Uniform()))
    # problems 0, 2, 4 have both rewards; 1 and 3 are always wrong
    assert [sizes for sizes, _ in seen] == [[4, 4, 4]] * 3
    assert len({draw for _, draw in seen}) == 3  # each step has draws of its own
    assert [len(group.kept) for group in steps[0].groups if group.trained] == [2, 2, 2]
    assert len(updates[0][0]) == 6


def test_what_a_rule_across_groups_must_not_return():
    groups = [Group(np.zeros(4), np.zeros(4, bool), np.ones(4, int))] * 2
    message = "must return distinct indices of each of 2 groups, at most 4 in all"
    for kept, why in (([[0], [4]], ": 4 is out of range"), ([[0, 0], []], ": 0 is repeated"),
                      ([[0]], ", not ..0"), ([[0, 1, 2], [0, 1]], ", not 5"), (None, ", not None"),
                      ([None, [0]], ", not None"), ([[0.5], []], r", not \[0.5")):  # fmt: skip
        with pytest.raises(ValueError, match=message + why):
            rule = across_groups(lambda groups, m, rng, kept=kept: kept)
            keep(rule, groups, 2, np.random.default_rng(0))


def test_functions_are_tried_before_anything_loads(tmp_path):
    for words, message in table("bad_functions"):
        config = composed(words, f"runs_dir={tmp_path / 'runs'}")
        for start_run in (entry_point._train, lambda config: sweep.run([config], None)):
            with pytest.raises(ValueError, match=message) as error:
                start_run(config)
            assert "\n" not in str(error.value) and not (tmp_path / "runs").exists()


def test_what_advantages_of_ones_own_must_not_return(monkeypatch):
    group, kept = Group(np.array([0.0, 1.0, 0.0]), np.zeros(3, bool), np.ones(3, int)), np.arange(2)
    for returned in ([0.5, np.nan], [True, False], ["1", "2"], [[0.5, 1]], [1, 2, 3], 1.5, None):
        monkeypatch.setattr("bad.wrong", lambda *of, to=returned: to)
        with pytest.raises(ValueError, match="=bad:wrong: must return 2 finite numbers, not "):
            own_advantages("bad:wrong", group, kept)
    words = [f"advantage.function={name}" for name in ("bad:wrong", "their_rules:by_place")]
    with pytest.raises(ValueError, match="bad:wrong"):
        try_functions([composed("nm.m=1", word) for word in words])  # not only the last
    ours = advantages(group.rewards, kept, baseline="full", scale="mean", eps=0)
    assert of_the_readme("my_advantages")["maxrl"](group, kept).tolist() == ours.tolist()


def choosing(name):
    return start(composed(f"prompts.selector=their_selectors:{name}").prompts)


def test_it_takes_from_what_comes_up_by_what_is_known():
    """Of a pool of four problems four come up per prompt, so that a step of two sees all twice."""
    order, selector = PromptOrder(seed=0, pool=4), choosing("hard")
    outcomes = [Outcome(0, 3, 4, False), Outcome(1, 0, 4, True), Outcome(2, 4, 4, True)]
    selector = selector.observe(order, outcomes).observe(order, outcomes)
    assert selector.seen == {"0": (8, 6), "1": (8, 0), "2": (8, 8)}
    chosen, after = selector.choose(order, 2)  # rates 0.75, 0, 1 and, unknown, 0.5
    assert (list(chosen.problems), chosen.passed_over, after.position) == ([1, 3], 6, 8)


def test_its_state_survives_a_checkpoint_and_each_step_has_draws_of_its_own():
    order = PromptOrder(seed=0, pool=9)
    selector = choosing("drawn").observe(order, [Outcome(5, 1, 4, False)])
    for _ in range(3):
        again = msgspec.json.decode(json.dumps(asdict(selector)), type=Uniform)
        first, selector = selector.choose(order, 2)
        assert list(again.choose(order, 2)[0].problems) == list(first.problems)
    assert selector.position == 24 and len({*sys.modules["their_selectors"].noted}) == 3
    with pytest.raises(ValueError, match=r"their_selectors:one: must return 2 different cand"):
        choosing("one").choose(order, 2)


def test_a_run_uses_it_and_its_identity_holds_the_sources_of_all(tmp_path):
    words = (*SHORT, "prompts.selector=their_selectors:hard", "sampler.rule=their_rules:surprising",
             "advantage.function=their_rules:by_place")  # fmt: skip
    store = run_here(*words, f"runs_dir={tmp_path}")
    lines = read_lines(store.metrics_path)
    assert [line["passed_over_prompts"] for line in lines] == [9, 9]
    before = store.identity()
    sources = {"their_selectors": "selector source", "their_rules": "rule source, function source"}
    for name, changes in sources.items():
        module = Path(sys.modules[name].__file__)
        module.write_text(module.read_text() + "# changed\n")
        changed = identity(composed(*words))
        assert ", ".join(key for key in changed if changed[key] != before[key]) == changes
        before = changed
    assert not any("source" in key for key in identity(composed(*SHORT)))
