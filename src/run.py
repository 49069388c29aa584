"""Hydra's door: compose the config, check it, freeze it, run it.

python src/run.py                                                     one run
python src/run.py -m sampler=max_variance,random 'seed=range(8)'      a sweep (quote the range)
python src/run.py experiment=quickstart                               a study
"""

import os
import sys
from contextlib import suppress
from typing import NoReturn

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pods import dry_run, job
from pods.checks import build
from pods.compose import one_line
from pods.config import CONF, Config
from pods.console import open_what_is_closed, replace_what_is_lacking, shown
from pods.launch.local import lacks
from pods.runs.frozen import freeze
from pods.sweep import SweepFailed
from pods.trouble import AGAIN, BAD_INPUT, DONE, FAILED, explain

DEBUG = "--debug" in sys.argv


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def train(composed: DictConfig) -> None:
    """One run in this process."""
    try:
        _train(build(OmegaConf.to_container(composed, resolve=True)))  # type: ignore[arg-type]
    except BrokenPipeError:
        raise
    except Exception as error:  # here, since Hydra adds lines to what leaves its task function
        sys.exit(explain(error, DEBUG))


def _train(config: Config) -> None:
    if config.dry_run:
        print("\n".join(dry_run.show([config])))
        return
    if config.launch.on != "local":
        fail(f"launch={config.launch.on}: takes sweeps; with -m this run is one", BAD_INPUT)
    if (lacking := lacks(config)) is not None:
        fail(str(lacking), BAD_INPUT)
    store = freeze(config)
    if not job.to_do(store, config.retry):
        status = store.status()
        if status["state"] == "failed":
            fail(
                f"{store.folder} failed ({status.get('error')}); retry=failed runs it again", FAILED
            )
        accuracy = status.get("accuracy")
        print(f"{store.folder} is done already"
              + ("" if accuracy is None else f": accuracy {accuracy:.3f}"))  # fmt: skip
        return
    code = job.execute(store.folder)
    if code != DONE:
        sys.exit(code)
    place = "" if config.runs_dir == "runs" else f" --runs-dir {config.runs_dir}"
    print(f"run folder: {store.folder}\nfigure:     pods plot {config.study}{place}")


def fail(message: str, code: int) -> NoReturn:
    """End with one line."""
    print(f"error: {shown(message)}", file=sys.stderr)
    sys.exit(code)


def main() -> None:
    """Report what went wrong in one line; with --debug, first where it comes from."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    sys.argv[:] = [word for word in sys.argv if word != "--debug"]
    open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        replace_what_is_lacking(stream)
    try:
        train()
    except (HydraException, OmegaConfBaseException) as error:
        fail(one_line(error, sys.argv[1:]), BAD_INPUT)
    except SweepFailed as error:
        with suppress(OSError):  # a terminal that went away
            print(error, file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:  # --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("stopped before anything began; the same command begins", file=sys.stderr)
        sys.exit(AGAIN)
    except Exception as error:
        sys.exit(explain(error, DEBUG))


if __name__ == "__main__":
    main()
