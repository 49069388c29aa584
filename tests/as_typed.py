"""Run `python SCRIPT ARGUMENTS...` in a forked process that has already imported the libraries.

    python -m as_typed FOLDERS SCRIPT ARGUMENTS...

FOLDERS: number of folders at the start of `sys.path` that a new process would not have.

A sweep in such a process forks its own fork server, too, which then has the libraries already.
`test_fork_server.py` starts fork servers as users do.
"""

import atexit
import os
import runpy
import sys
import traceback
import warnings
from pathlib import Path

from pods.launch import fork_server

KNOWN = set(sys.modules)


class Process:
    """Present the forked server like a `subprocess.Popen`."""

    returncode = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self, options=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        return self.poll(0)


def launch(server, words, stdin):
    """Replace `ForkServer._launch` by a fork of this process that ends as Python would."""
    pid = os.fork()
    if pid:
        return Process(pid)
    os.setsid()
    os.dup2(stdin, 0)
    server._control.close()  # else the server would not notice the end of the sweep
    for name in set(sys.modules) - KNOWN:  # such as a user's rule, which each job imports again
        del sys.modules[name]
    code = 0
    try:
        fork_server.main(*words)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    _, folders, *sys.argv = sys.argv
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[: int(folders)] = [str(Path(sys.argv[0]).parent), *filter(None, own)]
    fork_server.ForkServer._launch = launch
    warnings.filterwarnings("ignore", ".*found in sys.modules.*", RuntimeWarning)  # of runpy
    runpy.run_path(sys.argv[0], run_name="__main__")
