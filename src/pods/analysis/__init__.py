"""From run folders to numbers, figures and a comparison of the arms.

`loading/` reads and checks a study, `numbers/` averages it, and `figures/` and `compare/` present
it; imports go in this order only. Nothing here trains, evaluates or imports torch, and nothing
writes into a run's folder. Start reading in `loading/load.py`, then `numbers/curves.py`. What
the numbers mean stands in README.md.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pods.analysis.loading.study import Study


def load(folder: str | Path, allow: bool = False) -> "Study":
    """Read a study, such as runs/quickstart, as data frames: `runs`, `evaluations`, `steps`, ...

    With `allow`, what is missing is left out, and what is inconsistent accepted.

    `ValueError`: there are no runs, or something is missing or inconsistent and not allowed.
    """
    from pods.analysis.loading import load as loading  # pandas takes long to import
    from pods.runs.store import run_folders

    folder = Path(folder)
    runs = run_folders(folder)
    if not runs and not (folder / "imported").is_dir():
        raise ValueError(f"folder={folder}: must be the folder of a study; it has no runs")
    return loading.load(folder, runs, allow)
