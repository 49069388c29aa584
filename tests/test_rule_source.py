"""A rule of one's own: what of its module makes another run, and what its curve is called."""

import importlib
import sys

import pytest
from compose import composed
from studies import A, write_run

from pods.analysis import load
from pods.analysis.figures import drawings
from pods.analysis.tables import tables
from pods.config.parse import ConfigError
from pods.launch.sweep import varied_values
from pods.runs.rule_source import rule_source

MODULE = '''
"""Rules."""
import numpy as np
from math import ceil

HALF = 2

def lowest(group, m):
    """Return the lowest."""
    return np.argsort(group.rewards)[: m // HALF]

def half_half(group, m, rng):
    # the lowest and the last
    low = lowest(group, m)
    return np.concatenate([low, np.setdiff1d(range(len(group.rewards)), low)[: m - len(low)]])

def other(group, m, rng):
    return np.arange(ceil(m))
'''


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return a function that writes a module and returns the hash of one of its rules."""
    monkeypatch.chdir(tmp_path)

    def hash_of(text, function="half_half"):
        sys.modules.pop("own_rules", None)
        (tmp_path / "own_rules.py").write_text(text)
        importlib.invalidate_caches()
        sys.path_importer_cache.clear()
        return rule_source(f"own_rules:{function}")

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield hash_of
    sys.modules.pop("own_rules", None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# the lowest and the last", "# another comment"),
        ('"""Return the lowest."""', '"""Return other words."""'),
        ("np.arange(ceil(m))", "np.arange(m)"),  # of another rule
        ("from math import ceil", "from math import ceil, floor"),
        ("m - len(low)]]", "m  -  len(low)]  ]"),
        ('"""Rules."""', '"""My rules."""'),
    ],
)
def test_what_cannot_change_a_rule_leaves_its_source(source, old, new):
    assert old in MODULE
    assert source(MODULE) == source(MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m - len(low)]", "m - len(low) + 0]"),
        ("np.argsort(group.rewards)", "np.argsort(-group.rewards)"),  # of a function that it calls
        ("HALF = 2", "HALF = 3"),  # of a constant that this one uses
        ("import numpy as np", "import numpy.random as np"),
        ("def other", "half_half.enough = lambda group, m: True\n\ndef other"),
    ],
)
def test_what_can_change_a_rule_changes_its_source(source, old, new):
    assert old in MODULE
    assert source(MODULE) != source(MODULE.replace(old, new))


def test_rules_of_one_module_have_sources_of_their_own(source):
    assert source(MODULE) != source(MODULE, "other")


def test_a_module_that_is_not_there_says_where_it_was_searched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError, match=rf"No module named 'mine'; searched {tmp_path} and PYTH"):
        composed("sampler.rule=mine:rule")


def test_a_rule_of_ones_own_stands_beside_the_built_in_ones(source, tmp_path):
    """Its curve has the function's name, and the figure of rules has all three."""
    before = source(MODULE)
    for rule in ("own_rules:half_half", "max_variance", "random"):
        for seed in range(2):
            write_run(tmp_path, A, "study=s", f"sampler.rule={rule}", f"seed={seed}")
    study = load(tmp_path / "s")
    assert set(study.runs.series) == {"half_half 64→16", "max_variance 64→16", "random 64→16"}
    rules = {drawing.name: drawing for drawing in drawings(study, tables(study))}["rules"]
    axes = rules.draw().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "max_variance", "half_half", "random",
    ]  # fmt: skip
    assert source(MODULE.replace("HALF = 2", "HALF = 4")) != before
    write_run(tmp_path, A, "study=s", "sampler.rule=own_rules:half_half", "seed=0")
    names = {*load(tmp_path / "s", allow_missing=True, allow_mixed=True).runs.series}
    edited = sorted(name for name in names if "half_half" in name)
    assert len(names) == 4 and f"half_half 64→16, rule source={before[:8]}" in edited


def test_jobs_of_one_arm_are_told_apart():
    lr = [
        composed("arm=pods", f"update.lr={lr}", f"seed={s}") for lr in (1e-4, 3e-4) for s in (0, 1)
    ]
    assert varied_values(lr) == ["lr=0.0001", "lr=0.0001", "lr=0.0003", "lr=0.0003"]
    rules = [composed("arm=pods", f"sampler.rule={rule}") for rule in ("max_variance", "random")]
    assert varied_values([*rules, composed("arm=grpo")]) == ["rule=max_variance", "rule=random", ""]
