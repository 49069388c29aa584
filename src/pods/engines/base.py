"""The protocol of an engine: everything that the training loop knows about one."""

from collections.abc import Mapping
from typing import Any, Protocol

from pods.types import GenerationRequest, OnCompletion, Rollout


class EngineFailed(RuntimeError):
    """The engine broke down; the run is safe, and a new process can resume it."""


class Engine(Protocol):
    """Generates from the policy: token ids in, token ids and their log-probs out."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Which of its parts a library has chosen here; `environment.json` records them."""
        ...

    def generate(
        self, request: GenerationRequest, on_completion: OnCompletion | None = None
    ) -> list[list[Rollout]]:
        """Draw n completions of each prompt, or `request.rows` of all: a list per prompt, in order.

        `on_completion` is called once for every completion, as soon as it is complete, so that slow
        grading runs during generation. `EngineFailed`: the engine broke down.
        """
        ...

    def sync(self) -> float | None:
        """Bring the policy's current weights into the engine; do nothing if it has them.

        Return the kept projection (`policy/export.py`) of the adapters' change since the start of
        training if they are merged, otherwise None.
        """
        ...
