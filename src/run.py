"""The entry point of a run or a sweep: compose the config, check it, freeze it, execute it.

pods run                                                     one run; python src/run.py is the same
pods run -m sampler=max_variance,random 'seed=range(8)'      a sweep (quote the range)
pods run experiment=quickstart                               a study
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn

try:
    import hydra
except ModuleNotFoundError:
    sys.exit(f"error: {sys.executable} lacks this project: activate its environment, or install it")
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pods.config.checks import validate
from pods.config.compose import one_line, plain
from pods.config.schema import CONF, Config
from pods.launch import backend, dry_run, job
from pods.launch.devices import check_gpus
from pods.launch.sweep import SweepFailed
from pods.method.trial import try_functions
from pods.system.console import prepare_console
from pods.system.errors import AGAIN, BAD_INPUT, DONE, FAILED, explain, print_error
from pods.system.machine import warn_if_busy
from pods.tasks.load import check_data

DEBUG = "--debug" in sys.argv


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def train(composed: DictConfig) -> None:
    """Execute one run in this process."""
    try:
        _train(validate(plain(composed)))
    except BrokenPipeError:
        raise
    except Exception as error:  # not in `main`: Hydra adds lines to what its task function raises
        sys.exit(explain(error, DEBUG))


def _train(config: Config) -> None:
    if config.dry_run:
        print("\n".join(dry_run.show([config])))
        return
    if config.launch.on != "local":
        fail(f"launch={config.launch.on}: only for sweeps; -m makes this run one", BAD_INPUT)
    check_gpus([config])
    check_data([config.task])
    try_functions([config])
    store = backend.prepare(config)
    if not backend.has_work_left(store, config.retry):
        status = store.status()
        if status["state"] == "failed":
            fail(
                f"{store.folder} failed ({status.get('error')}); retry=failed runs it again", FAILED
            )
        accuracy = status.get("accuracy")
        print(
            f"{store.folder} is already done"
            + ("" if accuracy is None else f": accuracy {accuracy:.3f}")
        )
        return
    warn_if_busy(config.hardware.device)
    code = job.execute(store.folder)
    if code != DONE:
        sys.exit(code)
    option = "" if config.runs_dir == "runs" else f" --runs-dir {config.runs_dir}"
    print(f"run folder: {store.folder}\nfigure:     pods plot {config.study}{option}")


def fail(message: str, code: int) -> NoReturn:
    """Print an error as one line, and exit."""
    print_error(message)
    sys.exit(code)


def main() -> None:
    """Run Hydra, and report an error as one line; with --debug, print its traceback first."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    words = [word for word in sys.argv[1:] if word != "--debug"]
    sweep = [word for word in words if word in ("-m", "--multirun")]  # in any place, as users type
    sys.argv[1:] = sweep + [word for word in words if word not in sweep]
    prepare_console()
    try:
        train()
    except (HydraException, OmegaConfBaseException) as error:
        fail(one_line(error, sys.argv[1:]), BAD_INPUT)
    except SweepFailed as error:
        with suppress(OSError):  # a closed terminal
            print(error, file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:  # --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("stopped before the run began; the same command starts it", file=sys.stderr)
        sys.exit(AGAIN)
    except Exception as error:
        sys.exit(explain(error, DEBUG))


if __name__ == "__main__":
    main()
