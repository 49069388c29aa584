"""Read the PODS authors' release: find which logs a folder holds, and make tables of them."""

from pathlib import Path

from pods.analysis.loading.imports import Imported
from pods_lab.published.eight_gpus import CLUSTERS, read_exports
from pods_lab.published.one_gpu import FAMILIES, family_of, read_logs


def read_release(folder: Path, family: str) -> Imported:
    """Read one family of logs (gsm8k, math, llama, h100s or a100s) from a folder or its `results/`.

    Two families share no time axis, and some share no test set.
    `ValueError`: there is no such folder or family, or a file cannot be read.
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
    if family not in present:
        raise ValueError(f"family={family}: must be one of {', '.join(present)} in {results}")
    if family in FAMILIES:
        return read_logs(results, family)
    return read_exports(results, family)


def families(folder: Path) -> list[str]:
    """List the families that a folder has files of."""
    if not folder.is_dir():
        return []
    names = {path.name for path in folder.iterdir()}
    on_one_gpu = {family_of(name) for name in names}
    present = [family for family in FAMILIES if family in on_one_gpu]
    present += [family for family in CLUSTERS if f"{family}-acc.csv" in names]
    return present
