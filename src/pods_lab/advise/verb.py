"""`pods advise`: which n and m pay on this machine, for a model and a task, by a short pilot."""

import copy
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.system.errors import DONE, print_error

if TYPE_CHECKING:
    from pods.method.progress import Pair
    from pods_lab.advise.advice import Advice

STUDY = "advice"
STANDS_STILL = 1e-12  # learning rate
REPLACED = ("nm=", "nm.n=", "nm.m=", "nm.menu=", "arm=adaptive", "study=", "retry=")
"""Beginnings of the typed words that the advice replaces."""


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="as for pods run: model, task, ...")
    add("--steps", type=int, default=16, help="steps of each of three pairs (default: 16)")
    weighed = "pair to weigh, may be repeated (default: nm.menu, or eight)"
    add("--nm", action="append", metavar="N,M", help=weighed)


def run(options: Namespace) -> int:
    """Run the pilot unless it is there, and print and write what it says.

    `ConfigError`: an option or a key is not allowed.
    """
    from pods.analysis.writing import figures_folder
    from pods.config.checks import validate
    from pods.config.compose import compose
    from pods.launch import dry_run, sweep
    from pods.launch.local_backend import local_backend
    from pods.runs.freeze import freeze
    from pods_lab.advise.advice import advise, check_formula, read_pilot
    from pods_lab.advise.text import advice_lines, write

    if options.steps < 2:
        raise ConfigError("--steps", options.steps, "must be at least 2")
    values = compose([f"study={STUDY}", *options.overrides])
    typed = validate(values)
    menu = _menu(typed, options.nm or ())
    config = _pilot(values, typed.nm.m, options.steps)
    check_formula(config)
    if config.dry_run:
        print(*dry_run.show([config]), sep="\n")
        return DONE
    try:
        sweep.run([config], local_backend([config]), figure=False)
    except sweep.SweepFailed as failed:
        print_error(str(failed))
        return failed.code
    store = freeze(config)
    advice = advise(menu, read_pilot(store), seed=0)
    lines = [*advice_lines(advice), f"Run: {_run_command(options.overrides, advice)}"]
    print(*lines, sep="\n")
    model_and_task, study = store.folder.parents[1:3]
    stem = figures_folder(study) / f"{model_and_task.name}-{store.folder.name}"
    about = {"pilot": str(store.folder), "lines": lines}
    print(f"table: {write(advice, about, stem)} (JSON beside it)")
    return DONE


def _menu(config: Config, words: Sequence[str]) -> "list[Pair]":
    """Return the pairs to weigh, GRPO with the config's m first; a ValueError names a bad word."""
    from pods_lab.plan.plan import parse_nm

    m, pairs = config.nm.m, [parse_nm(word) for word in words]
    for word, (_, kept) in zip(words, pairs, strict=True):
        if kept < 2:
            raise ConfigError("--nm", word, "must be N,M with 2 <= M <= N")
    halves = [m, m // 2] if m >= 4 else [m]
    grid = [(times * m, kept) for kept in halves for times in (1, 2, 4, 8)]
    asked = pairs or (config.nm.pairs() if config.nm.menu else grid)
    return [*dict.fromkeys([(m, m), *asked])]


def _pilot(values: dict[str, Any], m: int, steps: int) -> Config:
    """Return the config of the pilot: a run that stands still and takes three pairs in turn.

    They are the least that identify the prices of n and m. In turn, a machine that is slow for a
    while is so for all of them; and the policy stays at its start, whose success is asked. A
    ConfigError says that there is no such run.
    """
    from pods.config.checks import validate

    values = copy.deepcopy(values)
    rule = values["sampler"]["rule"]
    if rule == "all":
        keeps = "must keep some of n rollouts, as arm=pods does: `pods advise` weighs that"
        raise ConfigError("sampler.rule", rule, f"{keeps} against GRPO, where all are kept")
    menu = [f"n{m}_m{m}", f"n{4 * m}_m{m}", f"n{4 * m}_m{4 * m}"]
    again = "failed" if values["retry"] == "none" else values["retry"]
    values |= {"arm": None, "rollouts_every_steps": 1, "retry": again}
    values["nm"] |= {"n": 4 * m, "m": 4 * m, "menu": menu, "allocation": None}
    values["update"] |= {"lr": STANDS_STILL}
    values["budget"] |= {"train_seconds": None, "max_steps": len(menu) * steps}
    values["checkpoint"] |= {"every_steps": None, "every_train_seconds": None}
    values["evaluation"] |= {"repeats": 1, "questions": 1}
    values["tracking"]["mode"] = "none"
    values["launch"] |= {"on": "local", "jobs": 1}
    pilot = validate(values)
    pilot.nm.menu = menu * steps  # each entry is tried once, and none chosen
    if pilot.engine.name == "vllm" and pilot.scores_what_is_sampled():
        pilot.update.importance = "token_truncate"  # else a merge that rounds all away is the end
    return pilot


def _run_command(words: Sequence[str], advice: "Advice") -> str:
    """Return the command that trains with the pair that is advised, or with a menu of those."""
    chosen = [advice.advised, *([advice.later] if advice.changes() else [])]
    pairs = sorted((advice.rows[index]["n"], advice.rows[index]["m"]) for index in chosen)
    n, m = map(max, zip(*pairs, strict=True))
    kept = [word for word in words if not word.startswith(REPLACED)]
    if len(pairs) > 1:
        kept += ["arm=adaptive"] * (not any(word.startswith("arm=") for word in kept))
        kept += [f"nm.menu=[{','.join(f'n{n}_m{m}' for n, m in pairs)}]"]
    return shlex.join(["pods", "run", *kept, f"nm.n={n}", f"nm.m={m}"])
