"""A value for one arm of a sweep reaches that arm's jobs, and no other."""

import hydra
import pytest

from pods.config.checks import validate
from pods.config.parse import ConfigError
from pods.config.per_arm import applied, check_arms, gathered
from pods.config.schema import CONF


def composed(*words):
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", gathered(words))


WORDS = ("pods.update.lr=3e-4", "update.lr=2e-4", "pods.nm.n=32", "grpo.nm.m=8")


@pytest.mark.parametrize(
    ("arm", "lr", "n", "m"),
    [("pods", 3e-4, 32, 16), ("grpo", 2e-4, 8, 8), ("random", 2e-4, 64, 16)],
)
def test_an_arm_gets_its_own_values_last(arm, lr, n, m):
    """The n of grpo is its m."""
    config = validate(applied(composed(f"arm={arm}", *WORDS)))
    assert (config.update.lr, config.nm.n, config.nm.m) == (lr, n, m)


def test_words_for_arms_are_gathered_and_others_are_left_alone(tmp_path):
    (tmp_path / "arm").mkdir()
    (tmp_path / "arm" / "hot.yaml").write_text("arm: hot\n")
    words = ["--config-dir", str(tmp_path), "arm=hot", "hot.update.betas=[0.9,0.95]", "nm.m=4"]
    assert gathered(words) == [
        "--config-dir", str(tmp_path), "arm=hot", "nm.m=4",
        '+per_arm={hot: ["update.betas=[0.9,0.95]"]}',
    ]  # fmt: skip
    assert gathered([]) == []
    assert gathered(["hot.nm.m=4", "update.lr=1", "pods.nm"]) == ["hot.nm.m=4", "update.lr=1",
                                                                  "pods.nm"]  # fmt: skip


def test_what_is_wrong_is_one_line():
    with pytest.raises(ConfigError, match=r"^update.typo=1: no such key; update has"):
        validate(applied(composed("arm=pods", "pods.update.typo=1")))
    with pytest.raises(ConfigError, match=r"^grpo.nm.m=8: arm=grpo is not in this command$"):
        check_arms(composed("arm=pods", "grpo.nm.m=8"), ["pods"])
    check_arms(composed("arm=pods", "grpo.nm.m=8"), ["pods", "grpo"])
