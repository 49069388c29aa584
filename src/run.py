"""The entry point of a run or a sweep: compose the config, check it, freeze it, execute it.

pods run                                                     one run; python src/run.py is the same
pods run -m sampler=max_variance,random 'seed=range(8)'      a sweep (quote the range)
pods run experiment=quickstart                               a study
"""

# ruff: noqa: E402  (the imports take seconds, in which a signal shall find its handler)

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from pods.system.errors import AGAIN
from pods.system.signals import SIGNALS, Stop


class StopNow(Stop):
    """Ends this process with one line at a signal, while no run is going on: nothing is lost."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle the first signal."""
        before = "stopped before the run began; the same command starts it\n"
        with suppress(Exception):  # the terminal may be gone, or a line be half printed
            os.write(2, b"stopped; the same command continues\n" if Stop.begun else before.encode())
            sys.stdout.flush()
        os._exit(AGAIN)


if __name__ == "__main__":
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # which `nohup` intends
            signal.signal(number, StopNow().handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `pods run` has blocked them until now

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
from pods.launch.figures import draw_figures
from pods.launch.sweep import SweepFailed
from pods.method.keep import try_functions
from pods.system.console import prepare_console
from pods.system.errors import BAD_INPUT, DONE, FAILED, explain, print_error
from pods.system.machine import end_process, warn_if_busy
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
        end_process(code)
    print(f"run folder: {store.folder}")
    draw_figures([store.folder])


def is_override(typed: tuple[str, str]) -> bool:
    """Tell whether a word is neither an option nor the value of the option before it."""
    word, before = typed
    return word[:1] != "-" and (before[:1] != "-" or "=" in word or word[:1] == "~")


def fail(message: str, code: int) -> NoReturn:
    """Print an error as one line, and exit."""
    print_error(message)
    sys.exit(code)


def main() -> None:
    """Run Hydra, and report an error as one line; with --debug, print its traceback first."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    words = [word for word in sys.argv[1:] if word != "--debug"]
    pairs = sorted(
        zip(words, ["", *words], strict=False), key=is_override
    )  # Hydra wants options first
    sys.argv[1:] = [word for word, _ in pairs]
    prepare_console()
    try:
        train()
    except (HydraException, OmegaConfBaseException) as error:
        fail(one_line(error, sys.argv[1:]), BAD_INPUT)
    except SweepFailed as error:
        with suppress(OSError):  # a closed terminal
            print(error, file=sys.stderr)
        end_process(error.code)
    except BrokenPipeError:  # --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        sys.exit(explain(error, DEBUG))


if __name__ == "__main__":
    main()
