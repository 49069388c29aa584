"""Time what an adaptive run does beside its steps: prints milliseconds per step.

    python experiments/adaptive/deciding.py

With the default sizes: two prompts of up to 64 rollouts of 21 tokens, a choice every five steps.
"""

import json
import statistics
import time

import numpy as np

from pods.config.presets import composed
from pods.method.adaptive import Adaptive, gradient_noise
from pods.method.prompt_order import Outcome

STEPS, TOKENS = 400, 21


def main() -> None:
    """Take steps without a model, and print the median time of a choice and of an observation."""
    nm = composed("regimes", "arm=adaptive").nm
    rng, state = np.random.default_rng(0), Adaptive()
    choosing, observing = [], []
    for step in range(STEPS):
        start = time.perf_counter()
        state = state.choose(nm)
        choosing.append(time.perf_counter() - start)
        n = nm.pairs()[state.pair][0]
        logprobs = [np.log(rng.random(TOKENS, dtype=np.float32)) for _ in range(2 * n)]
        right = rng.random(2 * n) < 0.7
        start = time.perf_counter()
        noise = gradient_noise(logprobs)
        sums = [noise[right].sum(), right.sum(), noise[~right].sum(), (~right).sum()]
        outcomes = [
            Outcome(2 * step + i, int(right[i * n : (i + 1) * n].sum()), n, False) for i in range(2)
        ]
        state = state.observe(outcomes, [float(number) for number in sums], 0.05)
        observing.append(time.perf_counter() - start)
    chosen = statistics.median(seconds for seconds in choosing[5::5])
    print(json.dumps({
        "a_choice_ms": round(1e3 * chosen, 3),
        "choosing_ms_per_step": round(1e3 * chosen / nm.every_steps, 3),
        "observing_ms_per_step": round(1e3 * statistics.median(observing), 3),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
