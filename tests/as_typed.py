"""`python SCRIPT ARGUMENTS...` in a process that a fork server has forked; a script, not a module.

    python -m as_typed FOLDERS SCRIPT ARGUMENTS...

FOLDERS: what the server's `sys.path` begins with that a fresh process would not have.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    _, folders, *sys.argv = sys.argv
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[: int(folders)] = [os.path.dirname(sys.argv[0]), *filter(None, own)]
    runpy.run_path(sys.argv[0], run_name="__main__")
