"""Write run folders by hand, as finished runs leave them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from compose import composed

from pods.cli.main import main
from pods.runs import checkpoint
from pods.runs.attempts import new_attempt
from pods.runs.files import append
from pods.runs.freeze import freeze
from pods.runs.store import RunStore
from pods.seeding import derive

REPEATS, QUESTIONS = 2, 4
BASE = ("evaluation.repeats=2", "evaluation.questions=4", "task.train_size=4",
        "budget.train_seconds=10", "checkpoint.every_steps=null",
        "checkpoint.every_train_seconds=4")  # fmt: skip
ENVIRONMENT = {"gpus": [], "cpu": "A CPU", "commit": "c0ffee", "packages": {"torch": "2.13.0"}}
Point = tuple[int, float, int]
"""Step, training seconds, and how many of the answers are right."""

# of 8 answers: run a goes 2, 6, 8 at 0, 4, 12 s; run b goes 0, 4 at 0, 10 s
A: list[Point] = [(0, 0.0, 2), (1, 4.0, 6), (2, 12.0, 8)]
B: list[Point] = [(0, 0.0, 0), (2, 10.0, 4)]


def start_policy(folder: Path) -> tuple[str, str]:
    """Make the smallest folder of weights that a run may start from; return the keys that do."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(folder.name)
    return f"model.path={folder}", f"model.name={folder.name}"


def write_run(
    runs_dir: Path,
    points: Sequence[Point],
    *overrides: str,
    repeats: int = REPEATS,
    questions: int = QUESTIONS,
    lenient: int | None = None,
    unanswered: Sequence[str] = (),
    busy: float | None = None,
    amounts: Sequence[Mapping[str, int]] = (),
) -> RunStore:
    """Write a finished run; the first of the repeats x questions answers are the right ones.

    The PODS authors' grader, if it is to be there, accepts `lenient` more answers after those. The
    first answers that are not right have the verdicts `unanswered`, and the others are wrong.

    The CPU is used for the share `busy` of the seconds, unless that was not recorded. A step takes
    3/4 of its seconds to generate and 1/4 to update; one without a point ends 1 s after the last.
    The k-th step also logs the k-th of `amounts`.
    """
    store = freeze(composed(f"runs_dir={runs_dir}", *BASE, *overrides))
    store.metrics_path.touch()
    seconds = {step: at for step, at, _ in points}
    before = 0.0
    for step in range(1, points[-1][0] + 1):
        after = seconds.get(step, before + 1)
        append(store.metrics_path, [{
            "step": step, "nonfinite": None, "train_seconds": after,
            "seconds/generate": 0.75 * (after - before), "seconds/update": 0.25 * (after - before),
            **({} if busy is None else {"cpu_seconds/generate": busy * (after - before)}),
            "reward": 0.1 * step, "generated_tokens": 100 * step, "trained_tokens": 40 * step,
            **(amounts[step - 1] if amounts else {}),
        }])  # fmt: skip
        before = after
    for step, at, right in points:
        write_evaluation(store, step, at, right, repeats, questions, lenient, unanswered)
    attempt = new_attempt(store)
    (attempt / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (attempt / "phases.json").write_text(json.dumps({"start": {"seconds": 5.0},
                                                     "generate": {"seconds": before}}))  # fmt: skip
    store.set_status(state="done", accuracy=0.5, step=points[-1][0], train_seconds=before)
    return store


def write_evaluation(
    store: RunStore, step: int, at: float, right: int, repeats: int, questions: int,
    lenient: int | None = None, unanswered: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a checkpoint and the records of its evaluation."""
    write_clock = partial(store.write_clock, step=step, train_seconds=at, evaluation=True)
    checkpoint.commit(store.checkpoint(step), write_clock)
    seed = store.config().seed
    asked = [(repeat, question) for repeat in range(repeats) for question in range(questions)]
    verdicts = [*["right"] * right, *unanswered, *["wrong"] * len(asked)]
    append(store.evaluation_path(step), [
        {"repeat": r, "question": f"q{q}", "correct": verdict == "right", "format": True,
         "lenient": None if lenient is None else k < right + lenient, "verdict": verdict,
         "length": 5, "finished": True, "seed": derive(seed, "evaluation", step, r, q)}
        for k, ((r, q), verdict) in enumerate(zip(asked, verdicts, strict=False))])  # fmt: skip


def write_rollouts(store: RunStore, step: int) -> None:
    """Write four rollouts of each of two prompts; the best and the worst are kept."""
    store.write_rollouts(step, [
        {"problem": f"p{p}", "question": f"{p}+1=", "completion": f"<b>{p + i}</b>",
         "reward": 0.5 * i, "correct": i == 3, "format": True, "length": 3 + i, "finished": True,
         "kept": i in (0, 3), "advantage": {0: -0.7, 3: 0.7}.get(i)}
        for p in range(2) for i in range(4)])  # fmt: skip


def pods(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def refused(capsys, *arguments: object) -> str:
    """Return the one line with which a verb refuses its arguments, and ends with 2."""
    assert pods(*arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line
