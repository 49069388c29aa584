"""Read the PODS authors' release: find which logs a folder holds, and make tables of them."""

from pathlib import Path

from pods.analysis.published.eight_gpus import CLUSTERS, read_exports
from pods.analysis.published.imports import Published
from pods.analysis.published.one_gpu import FAMILIES, family_of, read_logs


def read_published(
    folder: Path, family: str | None = None, dataset: str | None = None
) -> Published:
    """Read one family of logs; two families share no time axis, and some share no test set.

    Args:
        folder: the folder that holds the files, or `results/` with the files.
        family: gsm8k, math, llama, h100s or a100s; None: the only one in the folder.
        dataset: gsm8k, math500 or amc23; None: the one that the authors plot.

    Raises:
        ValueError: there is no such folder, family or dataset, or several families and no choice.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    results = folder if families(folder) else folder / "results"
    present = families(results)
    if not present:
        raise ValueError(
            f"{folder}: contains no logs of the PODS authors (their files are named "
            "Instruct-GSM8K-512-64-16-Run1.json, h100s-acc.csv)"
        )
    if family is None and len(present) > 1:
        raise ValueError(
            f"{results} has logs of {', '.join(present)}, which share no time axis or no "
            "test set: choose one with --family"
        )
    family = family or present[0]
    if family not in present:
        raise ValueError(f"family={family}: must be one of {', '.join(present)} in {results}")
    if family in FAMILIES:
        return read_logs(results, family, dataset)
    if dataset not in (None, "gsm8k"):
        raise ValueError(f"dataset={dataset}: must be gsm8k, on which {family} was evaluated")
    return read_exports(results, family)


def families(folder: Path) -> list[str]:
    """List the families that a folder has files of."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    logs = {family_of(name) for name in names}
    exports = {f for f in CLUSTERS if names & {f"{f}-acc.csv", f"{f}-length.csv"}}
    return [family for family in [*FAMILIES, *CLUSTERS] if family in logs | exports]
