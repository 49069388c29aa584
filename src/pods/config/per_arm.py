"""Values for one arm of a sweep: `pods.update.lr=3e-4` beside `arm=pods,grpo`.

No key of the config begins with an arm's name. So these words are put into one key that Hydra
knows, `per_arm`, which is applied to a job's config last and never part of it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pods.config.parse import ConfigError
from pods.config.schema import CONF

KEY = "per_arm"


def gathered(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with those for one arm put into one override.

    >>> gathered(["arm=pods,grpo", "pods.update.lr=3e-4", "seed=1"])
    ['arm=pods,grpo', 'seed=1', '+per_arm={pods: ["update.lr=3e-4"]}']
    """
    folders = [CONF, *_own_folders(words)]
    arms = {path.stem for folder in folders for path in (folder / "arm").glob("*.yaml")}
    rest, of_arm = [], defaultdict[str, list[str]](list)
    for word in words:
        arm, dot, override = word.partition(".")
        if dot and arm in arms and "=" in override:
            of_arm[arm].append(override)
        else:
            rest.append(word)
    if not of_arm:
        return rest
    parts = (f"{arm}: [{', '.join(map(_quoted, all_of))}]" for arm, all_of in of_arm.items())
    return [*rest, f"+{KEY}={{{', '.join(parts)}}}"]


def _own_folders(words: Sequence[str]) -> list[Path]:
    """Return the folders that `--config-dir` names."""
    return [
        Path(word.partition("=")[2] or after)
        for word, after in pairwise([*words, ""])
        if word.partition("=")[0] in ("--config-dir", "-cd")
    ]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def applied(composed: DictConfig) -> dict[str, Any]:
    """Return a job's plain values, with those for its arm and without the key itself."""
    keys = [str(key) for key in composed if key not in ("hydra", KEY)]
    config = OmegaConf.masked_copy(composed, keys)
    OmegaConf.set_struct(config, False)  # an unknown key is reported with the others, in `parse`
    own = (composed.get(KEY) or {}).get(composed.arm) or []
    merged = OmegaConf.merge(config, OmegaConf.from_dotlist(list(own)))
    return dict(OmegaConf.to_container(merged, resolve=True))  # type: ignore[arg-type]


def check_arms(composed: DictConfig, arms: Collection[str | None]) -> None:
    """Check that each arm with values of its own is among those of the command.

    Raises:
        ConfigError: one is not.
    """
    of_arm: Mapping[str, Sequence[str]] = composed.get(KEY) or {}
    for arm, overrides in of_arm.items():
        if arm not in arms:
            key, _, value = overrides[0].partition("=")
            raise ConfigError(f"{arm}.{key}", value, f"arm={arm} is not in this command")
