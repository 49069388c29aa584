"""vLLM's CUDA build, without a card: it takes each preset, and its kernels compile for Hopper.

CI has no such build, which experiments/benchmarks/pack.py packs.
"""

import ctypes
import json
import subprocess
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

import pytest
import torch
from compose import ROOT, composed

pytestmark = [pytest.mark.fake_cuda, pytest.mark.filterwarnings("default")]  # vLLM warns
DRIVER = """
int cuGetProcAddress_v2() { return 999; }  // an unknown error: there is no card
int cuPointerGetAttribute() { return 999; }
int cuTensorMapEncodeTiled() { return 999; }
"""
CARD = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "H100",
        "get_device_capability": (9, 0),
        "get_device_properties": SimpleNamespace(total_memory=80 << 30)}  # fmt: skip
MODEL = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 2048,
         "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
         "intermediate_size": 11008, "max_position_embeddings": 32768}  # fmt: skip
PRESETS = [path.stem for path in sorted((ROOT / "conf/experiment").glob("*.yaml"))
           if "override /engine: vllm" in path.read_text()]  # fmt: skip


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    """Pretend an H100 before vLLM looks for one; put models where fetched ones are."""
    try:
        build = version("vllm")
    except PackageNotFoundError:
        build = "no"
    if torch.version.cuda is None or build == "no" or "cpu" in build:
        pytest.skip("vLLM's CUDA build is not installed: experiments/benchmarks/pack.py packs it")
    home = tmp_path_factory.mktemp("home")
    library = home / "libcuda.so.1"  # the loader takes what has the driver's name for the driver
    command = ["gcc", "-shared", "-x", "c", "-", f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run(command, input=DRIVER, text=True, check=True)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    for model in (ROOT / "conf" / "model").glob("*.yaml"):
        (home / "models" / model.stem).mkdir(parents=True)
        (home / "models" / model.stem / "config.json").write_text(json.dumps(MODEL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODS_HOME", str(home))
        for name, value in CARD.items():
            patch.setattr(torch.cuda, name, lambda *_, value=value: value)
        from vllm import platforms
        from vllm.platforms.cuda import NonNvmlCudaPlatform

        patch.setattr(platforms, "_current_platform", NonNvmlCudaPlatform())
        yield


@pytest.mark.parametrize("graphs", ["full", "none"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_starts_what_it_asks_for(card, preset, graphs):
    from vllm import EngineArgs

    from pods.engines.vllm_setup import arguments

    config = composed(f"experiment={preset}", f"engine.graphs={graphs}", "dry_run=true")
    engine, sampling = config.engine, config.sampling
    made = EngineArgs(**arguments(config)).create_engine_config()
    model, batches, compiled = made.model_config, made.scheduler_config, made.compilation_config
    assert made.use_v2_model_runner and batches.async_scheduling
    assert model.max_model_len == sampling.max_prompt_tokens + sampling.max_completion_tokens
    assert (batches.max_num_seqs, str(model.dtype)) == (engine.max_rows, f"torch.{engine.dtype}")
    assert model.head_dtype == torch.float32
    assert made.cache_config.kv_cache_memory_bytes == engine.kv_gb * 2**30
    assert model.logprobs_mode == "raw_logprobs" and model.enforce_eager == (graphs == "none")
    names = {"full": ("VLLM_COMPILE", "FULL_AND_PIECEWISE"), "none": ("NONE", "NONE")}[graphs]
    assert (compiled.mode.name, compiled.cudagraph_mode.name) == names
    lora = made.lora_config
    assert (lora is not None) == (engine.sync == "adapter")
    if lora is not None:
        assert (lora.max_lora_rank, lora.max_loras) == (config.model.lora.r, 1)
        assert not compiled.cudagraph_specialize_lora


@pytest.fixture
def compiled(card, monkeypatch, tmp_path):
    """Compile kernels for Hopper where they would be launched; return their names and code."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    code, run = {}, JITFunction.run
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def compile_only(kernel, *values, grid, warmup, **settings):
        made = run(kernel, *values, grid=grid, warmup=True, **settings)
        code[kernel.__name__] = made.asm

    active = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    active.get_current_device, active.get_current_stream = lambda: 0, lambda _: 0
    monkeypatch.setattr(driver, "_active", active)
    monkeypatch.setattr(JITFunction, "run", compile_only)
    return code


def test_kernels_of_a_decoding_step_compile(compiled):
    from vllm.lora.ops.triton_ops.lora_expand_op import _lora_expand
    from vllm.lora.ops.triton_ops.lora_shrink_op import _lora_shrink
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
    from vllm.v1.worker.gpu.sample.logprob import compute_token_logprobs

    rows, rank, width = 64, 64, 2048
    ids, logits = torch.arange(rows), torch.zeros(rows, 1000)
    gumbel_sample(logits, ids.int(), torch.ones(rows), ids, ids, False, False)
    compute_token_logprobs(logits, ids[:, None])
    low, high = torch.zeros(1, rows, rank), torch.zeros(rows, width, dtype=torch.bfloat16)
    a, b = (torch.zeros(1, 1, *s, dtype=torch.bfloat16) for s in ((rank, width), (width, rank)))
    where = (ids.int(), ids.int(), torch.tensor([0, rows]).int(), torch.tensor([0, 0, rows]).int(),
             torch.tensor([-1, 0]).int(), torch.tensor([False]), torch.tensor([1]))  # fmt: skip
    _lora_shrink(high, [a], low, *where, 1.0)
    _lora_expand(low, [b], high, *where, add_inputs=True)
    names = "_gumbel_sample", "_topk_log_softmax", "_lora_shrink", "_lora_expand"
    assert [*compiled] == [f"{name}_kernel" for name in names]
    assert all(".target sm_90" in code["ptx"] and code["cubin"] for code in compiled.values())
