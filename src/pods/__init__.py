"""Compare which rollouts a policy is trained on, at the same wall-clock budget.

A script finds here the selection `rules` (also `from pods.rules import max_variance`) and
`advantages` as functions of arrays, `load` to read runs as a study, `compare` to hold its arms
against each other, and `PODSTrainer` for TRL. `audit` reads runs of other trainers as a study; it
is imported from `pods_lab` when it is asked for, which stands on this package. All else may change
from version to version.

>>> import numpy as np, pods
>>> rewards = np.array([0.0, 1.0, 0.4, 1.1, 0.1])
>>> kept = pods.rules.max_variance(rewards, 3)
>>> pods.advantages(rewards, kept, baseline="selected", scale="std", eps=0.0).round(2)
array([-0.66,  1.15, -0.49])
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pods import rules as rules
    from pods.analysis import load as load
    from pods.analysis.compare.compare import compare as compare
    from pods.integrations.trl import PODSTrainer as PODSTrainer
    from pods.method.grpo import advantages as advantages
    from pods_lab.audit.verb import audit as audit

PUBLIC = {
    "rules": "pods.rules",
    "advantages": "pods.method.grpo:advantages",
    "load": "pods.analysis:load",
    "compare": "pods.analysis.compare.compare:compare",
    "audit": "pods_lab.audit.verb:audit",
    "PODSTrainer": "pods.integrations.trl:PODSTrainer",
}


def __dir__() -> list[str]:
    """Offer these names where a shell completes `pods.`."""
    return list(PUBLIC)


def __getattr__(name: str) -> Any:
    """Import one of these when it is asked for, since torch and pandas take seconds."""
    if name not in PUBLIC:
        raise AttributeError(f"pods.{name}: must be a module, or one of {', '.join(PUBLIC)}")
    return resolve_name(PUBLIC[name])
