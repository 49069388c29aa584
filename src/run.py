"""The entry point of a run or a sweep: compose the config, check it, freeze it, execute it.

pods run                                                     one run; python src/run.py is the same
pods run -m sampler=max_variance,random 'seed=range(8)'      a sweep (quote the range)
pods run experiment=quickstart                               a study

One run is executed in this process, or by several that it starts (`hardware.processes`). With `-m`,
Hydra composes a config for each job and hands all of them to the launcher that `conf/launch/` names
(`hydra_plugins/pods_launchers/launcher.py`).
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

try:
    import hydra
except ModuleNotFoundError:
    sys.exit(f"error: {sys.executable} lacks this project: activate its environment, or install it")
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pods.config.checks import validate
from pods.config.compose import check_groups, one_line, plain
from pods.config.schema import CONF, Config
from pods.launch import backend, dry_run, job
from pods.launch.devices import check_gpus
from pods.launch.figures import draw_figures
from pods.launch.sweep import SweepFailed
from pods.method.keep import try_functions
from pods.runs.freeze import check_budgets
from pods.runs.plan import register
from pods.runs.store import RunStore
from pods.system.console import prepare_console
from pods.system.errors import BAD_INPUT, DONE, FAILED, INTERRUPTED, explain, print_error
from pods.system.machine import end_process, warn_if_busy
from pods.tasks.load import check_data

DEBUG = "--debug" in sys.argv
OF_HYDRA = ("hydra.job.chdir", "hydra.run.dir", "hydra.output_subdir", "hydra/job_logging")
"""Keys of Hydra that would move a run's relative paths, or write files beside its folder."""


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def train(composed: DictConfig) -> None:
    """Execute one run in this process; for `-m` Hydra calls a launcher instead."""
    try:
        config = validate(plain(composed, sys.argv[1:], HydraConfig.get().runtime))
        if config.launch.on != "local":
            fail(f"launch={config.launch.on}: only for sweeps; -m makes this run one", BAD_INPUT)
        if config.dry_run:
            print("\n".join(dry_run.show([config])))
        else:
            _train(config)
    except BrokenPipeError:
        raise
    except Exception as error:  # not in `main`: Hydra adds lines to what its task function raises
        sys.exit(explain(error, DEBUG))


def _train(config: Config) -> None:
    check_gpus([config])
    check_data([config.task])
    try_functions([config])
    check_budgets([config])
    register([config])

    store = backend.prepare(config)
    if not backend.has_work_left(store, config):
        _say_how_it_ended(store)
        return

    warn_if_busy(config.hardware.device)
    code = job.execute(store.folder)
    if code != DONE:
        end_process(code)
    print(f"run folder: {store.folder}")
    draw_figures([store.folder])


def _say_how_it_ended(store: RunStore) -> None:
    """Print how a run without work left has ended; exit if it failed."""
    status = store.status()
    if status["state"] == "failed":
        why = status.get("error")
        fail(f"{store.folder} failed ({why}); retry=failed runs it again", FAILED)

    line = f"{store.folder} is already done"
    accuracy = status.get("accuracy")
    if accuracy is not None:
        line += f": accuracy {accuracy:.3f}"
    print(line)


def options_first(words: Sequence[str]) -> list[str]:
    """Move options with their values before the overrides, as Hydra wants them."""
    options: list[str] = []
    overrides: list[str] = []
    before = ""
    for word in words:
        is_option = word.startswith("-")
        is_value = before.startswith("-") and "=" not in word and not word.startswith("~")
        if is_option or is_value:
            options.append(word)
        else:
            overrides.append(word)
        before = word
    return options + overrides


def fail(message: str, code: int) -> NoReturn:
    """Print an error as one line, and exit."""
    print_error(message)
    sys.exit(code)


def main() -> None:
    """Run Hydra, and report an error as one line; with --debug, print its traceback first."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    sys.argv[1:] = options_first([word for word in sys.argv[1:] if word != "--debug"])
    prepare_console()
    for word in sys.argv[1:]:
        if word.lstrip("+").partition("=")[0] in OF_HYDRA:
            fail(f"{word}: is not used here; runs_dir=FOLDER says where runs go", BAD_INPUT)
    try:
        check_groups(sys.argv[1:])
        train()
    except (HydraException, OmegaConfBaseException) as error:
        fail(one_line(error, sys.argv[1:]), BAD_INPUT)
    except SweepFailed as error:
        with suppress(OSError):  # a closed terminal
            print(error, file=sys.stderr)
        end_process(error.code)
    except BrokenPipeError:  # --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:  # while no run is going on: nothing is lost
        print("stopped; the same command continues", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(explain(error, DEBUG))


if __name__ == "__main__":
    main()
