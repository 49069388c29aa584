"""Find the engine, sync mode and dtype that generate fastest on this machine with exact log-probs.

    python experiments/benchmarks/calibrate.py [KEY=VALUE ...]     overrides as for src/run.py

Each mode is measured in its own process, because vLLM does not free its memory. A few real updates
with random advantages, as small as a run's first ones, move the policy: only the size of the change
matters. The script prints a table, and the fastest mode whose log-probs a run would accept.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from signal import Signals
from statistics import median
from typing import Any

from pods.config.checks import validate
from pods.config.compose import compose
from pods.config.schema import Config
from pods.runs.status import table
from pods.system.machine import end_with_parent, set_threads

UPDATES, SYNCS, CALLS = 3, 5, 3
MODE_SECONDS = 300.0  # time limit of a mode
FORMATS = {
    "sync_seconds": ".3f",
    "tokens_per_second": ",.0f",
    "gap_mean": ".1e",
    "gap_max": ".1e",
    "kept": ".4f",
}
Row = dict[str, Any]


def modes(config: Config) -> list[list[str]]:
    """Return the overrides of each mode: vLLM merged in each dtype, with adapters, transformers."""
    own = config.engine.dtype
    syncs = [("merged", dtype) for dtype in dict.fromkeys([own, "bfloat16", "float32"])]
    syncs += [("adapter", own)] if config.model.tuning == "lora" else []
    vllm = [
        ["engine=vllm", f"engine.sync={sync}", f"engine.dtype={dtype}"] for sync, dtype in syncs
    ]
    return [*vllm, ["engine=transformers"]]


def measure(config: Config) -> Row:
    """Move the policy by real updates, and measure how its engine follows.

    Returns:
        `tokens_per_second`; `gap_mean` and `gap_max` between engine and trainer log-probs;
        `sync_seconds` and `kept` (kept projection), None unless the engine has its own weights;
        `acceptable`, whether a run would continue with such gaps.
    """
    import numpy as np

    from pods.cli.probe import logprob_gap, quiet_and_threads, timed, timed_rollouts
    from pods.policy.optimizer import make_optimizer
    from pods.policy.policy import load
    from pods.policy.scoring import Context
    from pods.policy.update import update
    from pods.seeding import derive
    from pods.tasks.load import load as load_task
    from pods.tasks.prompts import drop_long_prompts
    from pods.training.build import make_engine
    from pods.training.mismatch import make_monitor
    from pods.types import Rollout, Sampling

    quiet_and_threads(config)
    policy = load(config)
    engine = make_engine(policy, config, lambda: None)
    optimizer = make_optimizer(policy, config.update)
    sampling = Sampling(config.sampling.temperature, config.sampling.max_completion_tokens)
    size, calls = config.prompts_per_step * config.nm.groups, UPDATES + CALLS
    problems = load_task(config.task).train[: calls * size]
    _, pool, _ = drop_long_prompts(problems, policy.tokenizer, config.sampling.max_prompt_tokens)
    prompts = list(islice(cycle(pool), calls * size))

    def call(step: int) -> tuple[list[Rollout], float]:
        """Return the rollouts that a step would train on, and tokens per second of all n."""
        batch = prompts[(step - 1) * size : step * size]
        groups, speed = timed_rollouts(engine, batch, config.nm.n, sampling, step)
        return [rollout for group in groups for rollout in group[: config.nm.m]], speed

    for step in range(1, UPDATES + 1):  # the first calls also warm up the engine
        rollouts, _ = call(step)
        rng = np.random.default_rng(derive(config.seed, "signs", step))
        update(
            Context(policy, config),
            optimizer,
            rollouts,
            rng.choice((-1.0, 1.0), len(rollouts)),
            [config.nm.m] * (len(rollouts) // config.nm.m),
            step,
        )
        engine.sync()
    syncs = [timed(engine.sync) for _ in range(SYNCS)]
    measured = [call(step) for step in range(UPDATES + 1, calls + 1)]
    mean, largest = logprob_gap(policy, config, measured[-1][0])
    kept, monitor = syncs[-1][0], make_monitor(config)
    own_weights = config.engine.name == "vllm"
    return {
        "sync_seconds": median(seconds for _, seconds in syncs) if own_weights else None,
        "tokens_per_second": median(speed for _, speed in measured),
        "gap_mean": mean,
        "gap_max": largest,
        "kept": kept,
        "acceptable": mean <= monitor.bound and monitor.merge_is_faithful(kept),
    }


def measure_in_process(overrides: Sequence[str], seconds: float = MODE_SECONDS) -> Row:
    """Measure a config in its own process; if that fails, return its last line as `error`."""
    command = [sys.executable, __file__, "--measure", *overrides]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"over {seconds:g} s"}
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    code = done.returncode
    end = f"killed by {Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {"error": ": ".join([end, *done.stderr.strip().splitlines()[-1:]])}


def verdict(rows: Sequence[Row]) -> str:
    """Name the fastest mode among those that a run would accept."""
    acceptable = [row for row in rows if row.get("acceptable")]
    if not acceptable:
        return "no mode keeps engine.gap_bound and engine.min_kept"
    best = max(acceptable, key=lambda row: float(row["tokens_per_second"]))
    return f"fastest that keeps engine.gap_bound and engine.min_kept: {best['mode']}"


def main(overrides: list[str]) -> None:
    """Measure every mode, and print the table and the verdict."""
    if overrides[:1] == ["--measure"]:
        end_with_parent()
        config = validate(compose(overrides[1:]))
        set_threads(config.hardware.threads)
        print(json.dumps(measure(config)))
        return
    rows = []
    for mode in modes(validate(compose([*overrides, "engine=vllm", "engine.sync=merged"]))):
        print(f"measuring {' '.join(mode)} ...", file=sys.stderr, flush=True)
        rows.append({"mode": " ".join(mode), **measure_in_process([*overrides, *mode])})
    cells = [
        [
            row["mode"],
            *(
                "-" if row.get(name) is None else format(row[name], f)
                for name, f in FORMATS.items()
            ),
            row.get("error", ""),
        ]
        for row in rows
    ]
    print(table(["mode", *FORMATS, ""], cells), verdict(rows), sep="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
