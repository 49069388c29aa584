"""`python SCRIPT ARGUMENTS...` in a process that a fork server has forked; a script, not a module.

    python -m as_typed FOLDERS SCRIPT ARGUMENTS...

FOLDERS: how many folders `sys.path` begins with that a fresh process would not have.

A sweep in such a process has its own fork server, which is forked too: the libraries are imported
here. `test_fork_server.py` launches them as users do.
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
    """The forked server, as `subprocess.Popen` would show it."""

    returncode = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self, how=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        return self.poll(0)


def launch(server, words, stdin):
    """In place of `ForkServer._launch`: a fork of this process, which ends as a Python would."""
    pid = os.fork()
    if pid:
        return Process(pid)
    os.setsid()
    os.dup2(stdin, 0)
    server._control.close()  # else the server would not see that the sweep's process is gone
    for name in set(sys.modules) - KNOWN:  # a rule of a user's own, which each job imports anew
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
