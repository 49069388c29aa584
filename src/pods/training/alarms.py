"""Alarms for a run that goes on and learns nothing: many steps in a row that look alike.

None of them ends the run. Each is told once, and `pods status` shows it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pods.engines.base import Engine
from pods.training.mismatch import MismatchMonitor
from pods.types import GenerationRequest, Prompt, Sampling

ALARM_STEPS = 20  # consecutive steps after which a symptom is an alarm
CUT_OFF = 0.8  # share of completions at the limit of tokens
PROBE_TOKENS = 8


@dataclass(frozen=True)
class Symptom:
    """A sign of a fault in one column of metrics.jsonl."""

    column: str
    shows: Callable[[float], bool]
    meaning: str


SYMPTOMS = (
    Symptom(
        "truncated",
        lambda share: share >= CUT_OFF,
        f"{CUT_OFF:.0%} or more of the completions are cut off at sampling.max_completion_tokens",
    ),
    Symptom("zero_variance_fraction", lambda share: share == 1, "no group's rewards differ"),
    Symptom("no_answer", lambda share: share == 1, "no completion has an answer in the format"),
    Symptom(
        "engine_change",
        lambda change: change == 0,
        "training the adapter has not changed the engine's log-probs",
    ),
)


@dataclass
class EngineMotion:
    """Finds out whether training an adapter ever changes the engine's log-probs.

    Until they change, the engine answers the same question before each step. An answer takes a few
    tokens, outside the training clock, and the least real change shows in its log-probs.
    """

    engine: Engine
    prompt: Prompt
    watched: bool  # an adapter is trained
    moved: bool = False
    change: float | None = None  # nats, mean over tokens since the start; None: not measured
    start: NDArray[np.float32] | None = None  # log-probs under the start policy

    def begin(self) -> None:
        """Ask the engine while it has the start policy, also in a run that resumes."""
        if self.watched:
            self.start = self.answer()

    def measure(self) -> None:
        """Ask the engine again, unless its log-probs have changed by now."""
        self.change = None
        if self.start is None or self.moved:
            return
        now = self.answer()
        tokens = min(len(now), len(self.start))  # another token may have ended the answer
        change = float(np.abs(now[:tokens] - self.start[:tokens]).mean())
        self.change = change
        self.moved = change != 0

    def answer(self) -> NDArray[np.float32]:
        """Return the log-probs of the engine's answer."""
        request = GenerationRequest(
            prompts=[self.prompt],
            n=1,
            sampling=Sampling(temperature=1.0, max_completion_tokens=PROBE_TOKENS),
            seeds=[0],
        )
        [[rollout]] = self.engine.generate(request)
        return rollout.logprobs


@dataclass
class Alarms:
    """All alarms of a run: those on the engine's log-probs, and those of symptoms.

    Of symptoms it counts the consecutive steps, and passes over a step without their column. It
    knows nothing but the lines of the log, from which a resumed run counts again.
    """

    monitor: MismatchMonitor
    motion: EngineMotion
    raised: list[str] = field(default_factory=list)  # alarms of symptoms, each told once
    streaks: Counter[str] = field(default_factory=Counter)  # by column

    def read(self, lines: Iterable[Mapping[str, Any]]) -> bool:
        """Record the lines of the log before a resume; return whether the engine has moved."""
        moved = False
        for line in lines:
            self.monitor.observe(line)
            self.observe(line)
            moved = moved or bool(line.get("engine_change"))
        return moved

    def check(self, line: Mapping[str, Any]) -> list[str]:
        """Record a step's line and return what to tell the user; raise as the monitor does."""
        messages = [f"step {line['step']}: {alarm}" for alarm in self.observe(line)]
        mismatch = self.monitor.check(line)
        return messages if mismatch is None else [*messages, mismatch]

    def observe(self, line: Mapping[str, Any]) -> list[str]:
        """Record a step's line; return the new alarms of symptoms."""
        new = []
        for symptom in SYMPTOMS:
            value = line.get(symptom.column)
            if value is None:
                continue
            streak = self.streaks[symptom.column] + 1 if symptom.shows(value) else 0
            self.streaks[symptom.column] = streak
            message = f"{symptom.meaning}, {ALARM_STEPS} steps in a row"
            if streak == ALARM_STEPS and message not in self.raised:
                new.append(message)

        self.raised += new
        return new
