"""The release of the PODS authors: which logs a folder holds, and their tables."""

from pathlib import Path

from pods.analysis.published.imports import Published
from pods.analysis.published.logs import FAMILIES, family_of, read_logs
from pods.analysis.published.wide import CLUSTERS, read_wandb


def read_published(
    folder: Path, family: str | None = None, dataset: str | None = None
) -> Published:
    """Read one family of the authors' logs; families share no time axis, and some no test set.

    Args:
        folder: with the files, or with `results/` in it.
        family: gsm8k, math, llama, h100s or a100s; None: the only one that is there.
        dataset: gsm8k, math500 or amc23; None: the one that the authors plot.

    Raises:
        ValueError: no such folder, family or dataset, or several families and none chosen.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    there = folder if families(folder) else folder / "results"
    found = families(there)
    if not found:
        raise ValueError(f"{folder}: no logs of the PODS authors in it (their files are named "
                         "Instruct-GSM8K-512-64-16-Run1.json, h100s-acc.csv)")  # fmt: skip
    if family is None and len(found) > 1:
        raise ValueError(f"{there} has logs of {', '.join(found)}, which share no time axis or no "
                         "test set: choose one with --family")  # fmt: skip
    family = family or found[0]
    if family not in found:
        raise ValueError(f"family={family}: {there} has logs of {', '.join(found)}")
    if family in FAMILIES:
        return read_logs(there, family, dataset)
    if dataset not in (None, "gsm8k"):
        raise ValueError(f"dataset={dataset}: {family} was evaluated on gsm8k")
    return read_wandb(there, family)


def families(folder: Path) -> list[str]:
    """The families that a folder has files of."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    logs = {family_of(name) for name in names}
    exports = {f for f in CLUSTERS if names & {f"{f}-acc.csv", f"{f}-length.csv"}}
    return [family for family in [*FAMILIES, *CLUSTERS] if family in logs | exports]
