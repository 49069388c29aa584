"""Pack what a bare GPU machine lacks into one archive of at most 64 MiB.

    python experiments/benchmarks/pack_wheels.py ARCHIVE [--python 3.12] [--tree vllm] [NAME ...]

It holds wheels of the named packages (by default those that `product` of gpu.py needs), without
their dependencies. antlr4-python3-runtime has no wheel on PyPI, so one is built here. --tree adds
the Python files of a package that is installed here, without its binaries. GPU.md says how to
install the archive. A larger one is refused.
"""

import argparse
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

LIMIT = 64 * 2**20
NAMES = ("hydra-core", "omegaconf", "orjson", "gguf")
BUILT = "antlr4-python3-runtime==4.9.3"  # what hydra-core and omegaconf 2.3 read configs with
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def fetch(names: list[str], python: str, folder: Path) -> None:
    """Download wheels of the tested versions for Linux and that Python, and build the one left."""
    pip = [sys.executable, "-m", "pip"]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    tested = f"--constraint={Path(__file__).parents[2] / 'constraints.txt'}"
    download = ["download", "--quiet", "--no-deps", "--only-binary=:all:", tested, *platforms]
    subprocess.run(
        [*pip, *download, f"--python-version={python}", "--dest", folder, *names], check=True
    )
    build = ["wheel", "--quiet", "--no-deps", "--wheel-dir", folder, BUILT]
    subprocess.run([*pip, *build], check=True)


def tree(package: str) -> tuple[Path, list[Path]]:
    """Return the folder of an installed package, and its files that are not binaries.

    Raises:
        ValueError: it is not installed here.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"--tree={package}: must be a package that is installed here")
    folder = Path(spec.submodule_search_locations[0])
    files = (path for path in folder.rglob("*") if path.is_file())
    return folder, sorted(p for p in files if p.suffix not in (".so", ".pyc"))


def pack(archive: Path, wheels: Path, packages: list[str], limit: int = LIMIT) -> int:
    """Write wheels and trees into the archive; return its bytes.

    Raises:
        ValueError: a package is not installed, or the archive is larger than the limit; it is
            removed then.
    """
    trees = [tree(package) for package in packages]
    with tarfile.open(archive, "w:xz") as file:
        for wheel in sorted(wheels.glob("*.whl")):
            file.add(wheel, f"wheels/{wheel.name}")
        for folder, files in trees:
            for path in files:
                file.add(path, f"tree/{path.relative_to(folder.parent)}")
    size = archive.stat().st_size
    if size > limit:
        archive.unlink()
        raise ValueError(f"{archive}: must be at most {limit:,} bytes, and would have {size:,}")
    return size


def main() -> int:
    """Fetch, pack, and say how large the archive is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--python", default="3.12", help="version on the machine (3.12)")
    parser.add_argument("--tree", action="append", default=[], metavar="PACKAGE")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        fetch(options.names, options.python, Path(folder))
        try:
            size = pack(options.archive, Path(folder), options.tree)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    print(f"{options.archive}: {size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
