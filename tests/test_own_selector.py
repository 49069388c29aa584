"""A prompt selector of one's own: one function, whose choices a resumed run repeats."""

import json
import textwrap

import pytest
from compose import composed
from running import run_here

from pods.method.own_selector import OwnSelector
from pods.method.prompt_order import Outcome, PromptOrder
from pods.method.prompt_selection import dump, restore
from pods.runs.identity import identity

MODULE = """
    def hard(candidates, seen, count, rng):
        rate = {p: right / rollouts for p, (rollouts, right) in seen.items()}
        return sorted(candidates, key=lambda p: (rate.get(p, 0.5), p))[:count]

    def drawn(candidates, seen, count, rng):
        return rng.choice(candidates, count, replace=False)

    def one(candidates, seen, count, rng):
        return candidates[:1] * count
"""
RUN = ("budget.train_seconds=null", "budget.max_steps=2", "nm.n=4", "nm.m=2", "tracking=none",
       "evaluation.questions=4", "evaluation.repeats=1", "prompts.candidates=3")  # fmt: skip


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "their_selectors.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)


def config(name):
    return composed(f"prompts.selector=their_selectors:{name}", "prompts.candidates=2").prompts


def test_it_takes_from_what_comes_up_by_what_is_known():
    """Of a pool of four problems two come up per prompt, so that a step of two sees all four."""
    order, prompts = PromptOrder(seed=0, pool=4), config("hard")
    outcomes = [Outcome(0, 3, 4, False), Outcome(1, 0, 4, True), Outcome(2, 4, 4, True)]
    selector = OwnSelector().observe(order, outcomes, prompts).observe(order, outcomes, prompts)
    assert selector.seen == {"0": (8, 6), "1": (8, 0), "2": (8, 8)}
    chosen, after = selector.choose(order, 2, prompts)  # rates 0.75, 0, 1 and, unknown, 0.5
    assert (list(chosen.problems), chosen.passed_over, after.position) == ([1, 3], 2, 4)


def test_its_state_survives_a_checkpoint():
    order, prompts = PromptOrder(seed=0, pool=9), config("drawn")
    selector = OwnSelector().observe(order, [Outcome(5, 1, 4, False)], prompts)
    _, selector = selector.choose(order, 2, prompts)
    again = restore(prompts, json.loads(json.dumps(dump(selector))))
    first, second = (one.choose(order, 2, prompts)[0].problems for one in (selector, again))
    assert list(first) == list(second) and again.position == 4


def test_another_number_of_problems_is_refused():
    with pytest.raises(ValueError, match=r"their_selectors:one: must return 2 different cand"):
        OwnSelector().choose(PromptOrder(seed=0, pool=9), 2, config("one"))


def test_a_run_uses_it_and_its_identity_holds_its_source(tmp_path):
    store = run_here(*RUN, "prompts.selector=their_selectors:hard", f"runs_dir={tmp_path}")
    lines = [json.loads(line) for line in store.metrics_path.read_text().splitlines()]
    assert [line["passed_over_prompts"] for line in lines] == [4, 4]
    assert len(store.identity()["selector source"]) == 64
    other = identity(composed(*RUN, "prompts.selector=their_selectors:drawn"))
    assert other["selector source"] != store.identity()["selector source"]
    assert "selector source" not in identity(composed(*RUN))
