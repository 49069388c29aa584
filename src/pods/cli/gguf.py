"""Make a Hugging Face folder of a GGUF, for `pods fetch`."""

from pathlib import Path
from typing import Any


def convert(label: str, file: Path, folder: Path) -> None:
    """Write the weights (float32) and the tokenizer of a GGUF into a new folder.

    Args:
        label: what the user named; messages begin with it.
        file: the GGUF, whole: chunks have to be joined before.
        folder: is created.

    Raises:
        ValueError: transformers cannot read the file; the message says why, in one line.
    """
    from transformers.utils import logging

    megabytes = file.stat().st_size / 1e6
    print(f"{label}: converting {megabytes:,.0f} MB", flush=True)
    logging.disable_progress_bar()
    try:
        _check_whole(file)
        _write(file, folder)
    except Exception as error:  # the libraries raise many kinds
        why = " ".join(str(error).split())[:300] or repr(error)
        must = "must be a whole GGUF that transformers can read"
        raise ValueError(f"{label}: {must}: {why}") from error


def _check_whole(file: Path) -> None:
    from gguf import GGUFReader

    class Reader(GGUFReader):  # type: ignore[misc]  # the library has no types
        """Reads nothing behind the file's end, where the library finds as much as is announced."""

        def _get(self, offset: int, dtype: Any, count: int = 1, **order: Any) -> Any:
            values = super()._get(offset, dtype, count, **order)
            if len(values) < count:
                raise ValueError("it announces more than it has")
            return values

    try:
        reader = Reader(file)
        end = max(tensor.data_offset + tensor.n_bytes for tensor in reader.tensors)
    except (ValueError, IndexError) as error:
        raise ValueError(f"it is cut off ({error})") from error
    if file.stat().st_size >= end + reader.alignment:
        raise ValueError("bytes follow the last tensor")


def _write(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
