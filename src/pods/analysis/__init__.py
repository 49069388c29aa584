"""From run folders to numbers: load a study, check it, average, compare, draw, explain the cost.

Nothing here trains, evaluates or imports torch, and nothing writes into a run's folder. README.md
says which numbers are made and how. Start reading in `study.py`, which loads a study and checks
that it is complete and consistent; then `outcomes.py` and `comparison/`, or `curves.py` and
`figures.py`. `cost/` models the time of a step and plans sweeps, and
`published/` imports the PODS authors' logs.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pods.analysis.study import Study


def load(folder: str | Path, allow_missing: bool = False, allow_mixed: bool = False) -> "Study":
    """Read a study, such as runs/quickstart, as data frames: `runs`, `evaluations`, `steps`, ...

    Args:
        folder: the study's folder.
        allow_missing: leave out what is missing or damaged; `Study.missing` names it.
        allow_mixed: accept runs that are not comparable; `Study.inconsistencies` says why.

    Raises:
        ValueError: there are no runs, or something is missing or inconsistent and not allowed.
    """
    from pods.analysis import study  # pandas takes long to import, and most verbs need none
    from pods.runs.store import run_folders

    folder = Path(folder)
    runs = run_folders(folder)
    if not runs and not (folder / "imported").is_dir():
        raise ValueError(f"folder={folder}: must be the folder of a study; it has no runs")
    return study.load(folder, runs, allow_missing, allow_mixed)
