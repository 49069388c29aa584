"""A run starts from another run's checkpoint: whole weights, or an adapter that is merged."""

import pytest
import torch
from compose import composed
from peft import PeftModel
from policies import untrained
from running import ONE_STEP, run_here
from transformers import AutoModelForCausalLM

from pods.cli.main import main
from pods.config.parse import ConfigError
from pods.policy.policy import load
from pods.runs.identity import identity

RUN = (*ONE_STEP, "update.lr=0.01")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """The policy of a checkpoint with trained adapters."""
    store = run_here(*RUN, "model.tuning=lora", f"runs_dir={tmp_path_factory.mktemp('runs')}")
    return store.checkpoints / "step-000001" / "policy"


def test_an_adapter_is_merged_into_the_models_own_weights(adapter):
    adapted = PeftModel.from_pretrained(untrained(composed()), adapter)
    expected = adapted.merge_and_unload().state_dict()
    start = load(composed()).causal_lm.state_dict()
    changed = 0
    for tuning in ("full", "lora"):
        policy = load(composed(f"model.path={adapter}", f"model.tuning={tuning}"))
        weights = {
            name.replace(".base_layer", "").removeprefix("base_model.model."): weight
            for name, weight in policy.model.state_dict().items()
            if "lora_" not in name
        }
        assert set(weights) == set(expected)
        for name, weight in weights.items():
            assert torch.allclose(weight, expected[name], atol=1e-6)
            changed += not torch.equal(weight, start[name])
    assert changed == 2 * 14  # seven targets in two layers
    assert all(p.requires_grad for p in load(composed(f"model.path={adapter}")).model.parameters())


def test_a_run_goes_from_an_adapter_and_is_exported_whole(adapter, tmp_path, capsys):
    store = run_here(*RUN, f"model.path={adapter}", "model.tuning=lora", f"runs_dir={tmp_path}")
    assert store.status()["state"] == "done" and len(store.identity()["adapter"]) == 2
    assert identity(composed(*RUN))["weights"] == store.identity()["weights"]
    capsys.readouterr()
    assert main(["export", str(store.folder), str(tmp_path / "out")]) == 2
    assert "--merge=false: must be given" in capsys.readouterr().err
    assert main(["export", str(store.folder), str(tmp_path / "out"), "--merge"]) == 0
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    policy = load(composed(*RUN, f"model.path={adapter}", "model.tuning=lora"))
    policy.restore(store.checkpoints / "step-000001" / "policy")
    for name, weight in policy.model.merge_and_unload().state_dict().items():
        assert torch.allclose(weight, exported[name], atol=1e-6)


def test_whole_weights_of_a_checkpoint_are_a_start_and_others_are_refused(adapter, tmp_path):
    store = run_here(*RUN, f"runs_dir={tmp_path}")
    folder = store.checkpoints / "step-000001" / "policy"
    before = load(composed()).causal_lm.state_dict()
    after = load(composed(f"model.path={folder}")).causal_lm.state_dict()
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())
    config = (adapter / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)  # without its weights
    with pytest.raises(ValueError, match=r"^model.path=.*: cannot be merged into this model: "):
        load(composed(f"model.path={tmp_path}"))
    with pytest.raises(ConfigError, match="must have whole weights where engine=vllm"):
        composed(f"model.path={adapter}", "engine=vllm", "dry_run=true")
