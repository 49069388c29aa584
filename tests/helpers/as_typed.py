"""Run `python SCRIPT ARGUMENTS...` in a forked process that has already imported the libraries.

A sweep in such a process forks its jobs from the same server; `test_fork_server.py` starts one as
users do.
"""

import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path


def main(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stderr: Path
) -> int:
    """Return the exit code of the script, executed in this folder with this environment."""
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND), 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # that of this environment
    sys.argv = list(arguments)
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [str(Path(sys.argv[0]).parent), *own]
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
