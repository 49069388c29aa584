"""`pods advise`: what n and m cost here and are expected to gain, by a short pilot."""

import copy
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pods.config.parse import ConfigError
from pods.config.schema import Config
from pods.system.errors import DONE, print_error

if TYPE_CHECKING:
    from pods_lab.advise.advice import Advice
    from pods_lab.price.model import Pair

STUDY = "advice"
STANDS_STILL = 1e-12  # learning rate
REPLACED = ("nm=", "nm.n=", "nm.m=", "study=", "retry=")
"""Beginnings of the typed words that the advice replaces."""


def add_options(parser: ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="as for pods run: model, task, ..."
    )
    parser.add_argument(
        "--steps", type=int, default=16, help="steps of each of three pairs (default: 16)"
    )
    parser.add_argument(
        "--nm",
        action="append",
        metavar="N,M",
        help="pair to compare, may be repeated (default: nine)",
    )


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
    from pods_lab.advise.advice import advise, check_law, form_warning, read_pilot
    from pods_lab.advise.text import advice_lines, write

    if options.steps < 2:
        raise ConfigError("--steps", options.steps, "must be at least 2")
    values = compose([f"study={STUDY}", *options.overrides])
    typed = validate(values)
    menu = _menu(typed.nm.m, options.nm or ())
    check_law(typed)
    pilot = _pilot(values, typed.nm.m, options.steps)

    if typed.dry_run:
        print("\n".join(dry_run.show(pilot)))
        return DONE
    try:
        sweep.run(pilot, local_backend(pilot), figure=False)
    except sweep.SweepFailed as failed:
        print_error(str(failed))
        return failed.code

    stores = [freeze(config) for config in pilot]
    advice = advise(menu, read_pilot(stores), seed=0)
    lines = advice_lines(advice)
    lines.append(_run_command(options.overrides, advice))
    warning = form_warning(typed)
    if warning is not None:
        lines.insert(0, warning)
    print("\n".join(lines))

    first = stores[0].folder
    model_and_task, study = first.parents[1:3]
    stem = figures_folder(study) / f"{model_and_task.name}-{first.name}"
    about = {"pilot": [str(store.folder) for store in stores], "lines": lines}
    print(f"table: {write(advice, about, stem)} (and JSON)")
    return DONE


def _menu(m: int, words: Sequence[str]) -> "list[Pair]":
    """Return the pairs to compare, GRPO with the config's m first.

    `ConfigError`: a word is not N,M.
    """
    from pods_lab.price.costs import parse_nm

    menu = [(m, m)]
    for word in words:
        pair = parse_nm(word)
        if pair[1] < 2:
            raise ConfigError("--nm", word, "must be N,M with 2 <= M <= N")
        menu.append(pair)
    if not words:
        menu += [(n, m) for n in (2 * m, 4 * m, 8 * m)]
        if m >= 4:
            menu += [(n, m // 2) for n in (m // 2, m, 2 * m, 4 * m, 8 * m)]
    return list(dict.fromkeys(menu))


def _pilot(values: dict[str, Any], m: int, steps: int) -> list[Config]:
    """Return the configs of the pilot: three runs that stand still.

    Their pairs are the fewest that identify the prices of n and m. The policy stays at its start,
    whose success rates are asked. Each run has a seed of its own, so that it sees other prompts.

    `ConfigError`: there is no such run.
    """
    from pods.config.checks import validate

    pilot = []
    for index, (n, kept) in enumerate([(m, m), (4 * m, m), (4 * m, 4 * m)]):
        run = copy.deepcopy(values)
        run |= {
            "arm": None,
            "seed": values["seed"] + index,
            "rollouts_every_steps": 1,
            "retry": "failed" if values["retry"] == "none" else values["retry"],
        }
        run["nm"] |= {"n": n, "m": kept}
        run["update"] |= {"lr": STANDS_STILL}
        run["budget"] |= {"train_seconds": None, "max_steps": steps}
        run["checkpoint"] |= {"every_steps": None, "every_train_seconds": None}
        run["evaluation"] |= {"repeats": 1, "questions": 1}
        run["tracking"]["mode"] = "none"
        run["launch"] |= {"on": "local", "jobs": 1}

        config = validate(run)
        if config.engine.name == "vllm" and config.scores_what_is_sampled():
            # at this rate a merge rounds the whole update away, which would end the run
            config.update.importance = "token_truncate"
        pilot.append(config)
    return pilot


def _run_command(words: Sequence[str], advice: "Advice") -> str:
    """Return the command that trains with the pair that is advised."""
    row = advice.rows[advice.advised]
    command = ["pods", "run"]
    command += [word for word in words if not word.startswith(REPLACED)]
    command += [f"nm.n={row['n']}", f"nm.m={row['m']}"]
    return shlex.join(command)
