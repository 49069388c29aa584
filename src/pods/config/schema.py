"""Every key of a run's config: its type, the values it allows and what it means.

The keys of the method (`nm`, `sampler`, `prompts`, `update`, ...) are in `method_keys.py`, those of
`task` in `task_keys.py`. Values live in `conf/`; rules that bind several keys in `checks.py`. A key
is *science* (it can change what a run computes, so it is part of the run's identity) unless it is
marked `operational`. Standard library only, because every command imports this module.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pods.config import method_keys as method
from pods.config.key import FILE_NAME, key, operational
from pods.config.task_keys import TaskConfig

PACKAGE = Path(__file__).parents[1]
CONF = next(path for path in (PACKAGE / "conf", PACKAGE.parents[1] / "conf") if path.is_dir())
"""The folder of YAML files, in an installed wheel or in a checkout."""
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that get an adapter, as in the PODS authors' code; of other models all linear ones."""


@dataclass
class LoraConfig:
    """Low-rank adapters (PEFT), used if model.tuning=lora."""

    r: int = key("rank of the LoRA adapters", low=1)
    alpha: int = key("LoRA scale: the weights change by alpha / r * B A", low=1)


@dataclass
class SizesConfig:
    """The sizes of the model, by which memory is forecast before its weights are here."""

    parameters: int = operational("numbers in all weights; 0: unknown, as all sizes of hub", low=0)
    layers: int = operational("layers, each with attention and a gated part", low=0)
    hidden: int = operational("width of a layer's input", low=0)
    intermediate: int = operational("width of the gated part", low=0)
    heads: int = operational("heads of queries", low=0)
    kv_heads: int = operational("heads of keys, and of values", low=0)
    head_size: int = operational("width of a head", low=0)
    vocabulary: int = operational("rows of the embedding", low=0)


@dataclass(kw_only=True)
class ModelConfig:
    """The policy."""

    name: str = key("label of the model in run folders", form=FILE_NAME)
    path: str | None = key(
        "folder of weights, or of a LoRA adapter to merge (`pods fetch` makes one of a GGUF); "
        "null: what `pods fetch` stored, else the hub"
    )
    hub: str | None = key("name on the Hugging Face hub; null: the model ships with the package")
    dtype: Literal["float32", "bfloat16"] = key("dtype of the policy's weights, frozen or trained")
    tuning: Literal["lora", "full"] = key("train LoRA adapters or all weights")
    lora: LoraConfig
    sizes: SizesConfig
    compute_dtype: Literal["float32", "bfloat16"] | None = key(
        "dtype that the update of all weights (model.tuning=full) computes in; null: model.dtype"
    )

    def adapter(self) -> Path | None:
        """Return `path` if it holds an adapter: it is merged into the weights that it was for."""
        if self.path is None:
            return None
        folder = Path(self.path)
        whole = (folder / "config.json").is_file()
        holds_one = (folder / "adapter_config.json").is_file() and not whole
        return folder if holds_one else None


@dataclass
class EngineConfig:
    """The engine of rollouts; `sync` and `kv_gb` are for vLLM."""

    name: Literal["transformers", "vllm"] = key("inference engine")
    max_rows: int = key(
        "most sequences decoded at once; transformers also evaluates in such chunks", low=1
    )
    dtype: Literal["float32", "bfloat16", "float16"] = key(
        "dtype of the engine's own weights: vLLM's, or the full copy of sharded weights"
    )
    sync: Literal["merged", "adapter"] = key(
        "how weights reach vLLM: merged, or as an adapter (which needs model.tuning=lora)"
    )
    kv_gb: float = key("GiB for vLLM's keys and values", above=0)
    graphs: Literal["full", "none"] = operational("CUDA graphs and compiled layers of vLLM")
    lag: int = key("draw a step's rollouts from weights of so many updates before", low=0)


@dataclass
class HardwareConfig:
    """The devices of one run."""

    device: Literal["cpu", "cuda"] = key("device of the model")
    threads: int = key("CPU threads per process, set before torch is loaded", low=1)
    processes: int = operational("processes that train a run, each on its own GPU", low=1)
    shard: bool = key(
        "shard all trained weights, gradients and moments over the processes (FSDP2); the "
        "transformers engine then uses a full copy in engine.dtype"
    )


@dataclass
class BudgetConfig:
    """The end of training, whichever limit comes first."""

    train_seconds: float | None = key(
        "seconds of training clock: generate, reward, select, update and sync of committed steps, "
        "without start, checkpoints and evaluations; null sets no limit",
        above=0,
    )
    max_steps: int | None = key("number of steps; null sets no limit", low=0)
    clock_model: str | None = key(
        "prices by which each step advances the clock: l40s, or a JSON file with base, "
        "per_rollout, per_kept (seconds) and source; null: it is measured"
    )

    def is_spent(self, step: int, train_seconds: float) -> bool:
        """Return whether a run whose training clock shows `train_seconds` ends after a step."""
        if self.max_steps is not None and step >= self.max_steps:
            return True
        return self.train_seconds is not None and train_seconds >= self.train_seconds

    def clock_text(self) -> str:
        """Return where the training seconds come from."""
        model = self.clock_model
        return "measured" if model is None else f"modelled by {Path(model).name}"


@dataclass
class EvaluationConfig:
    """The evaluation of each checkpoint."""

    repeats: int = key("independently sampled passes over the test questions", low=1)
    questions: int | None = key("use the first N test questions in every run; null uses all", low=1)
    temperature: float = key("sampling temperature of evaluations; 0 is greedy decoding", low=0)


@dataclass
class CheckpointConfig:
    """The checkpoints that are saved and evaluated, besides step 0 and the end of the budget."""

    every_steps: int | None = key("save a checkpoint every N steps; null disables", low=1)
    every_train_seconds: float | None = key("save one every N seconds of training clock", above=0)


@dataclass
class TrackingConfig:
    """The copy of a run's metrics for a tracker, in the project `WANDB_PROJECT`, or else pods."""

    mode: Literal["none", "offline", "online", "tensorboard", "trackio"] = operational(
        "tracker: W&B (offline: in the run folder), TensorBoard, Trackio"
    )


@dataclass
class LaunchConfig:
    """The execution of a sweep's jobs."""

    on: Literal["local", "slurm", "ray"] = operational("where a sweep's jobs run")
    jobs: int | None = operational("jobs at once; null: by GPUs or cores, all on a cluster", low=1)


@dataclass(kw_only=True)
class Config:
    """The config of one run."""

    seed: int = key("seed of prompt order, sampling, selection and adapter initialization", low=0)
    study: str = operational("folder of the runs to compare", form=FILE_NAME)
    arm: str | None = operational("label of the curve; null: the rule's name", form=FILE_NAME)
    reproduction: Literal["ours", "faithful"] = operational("our choices, or the papers'")
    runs_dir: str = operational("folder that holds all studies")
    retry: Literal["none", "failed", "changed", "all"] = operational(
        "run again what has failed; changed: also resume, and mark, runs although what they are "
        "made of has changed; all: also remove and repeat what is done"
    )
    dry_run: bool = operational("only list the jobs, what they need and cost")
    watchdog_seconds: float | None = operational(
        "end a job after N seconds without a heartbeat, 4 N at its start; null disables", above=0
    )
    prompts_per_step: int = key("prompts per step", low=1)
    rollouts_every_steps: int | None = operational(
        "save rollouts every N steps; null: never", low=1
    )
    task: TaskConfig
    model: ModelConfig
    sampler: method.SamplerConfig
    nm: method.NmConfig
    prompts: method.PromptsConfig
    group_filter: method.GroupFilterConfig
    sampling: method.SamplingConfig
    advantage: method.AdvantageConfig
    update: method.UpdateConfig
    engine: EngineConfig
    hardware: HardwareConfig
    budget: BudgetConfig
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    tracking: TrackingConfig
    launch: LaunchConfig

    def on(self, processes: int) -> "Config":
        """Return the same run on another number of processes."""
        return replace(self, hardware=replace(self.hardware, processes=processes))

    def arm_name(self) -> str:
        """Return the label of the arm, or the rule's name without its module."""
        return self.arm or self.sampler.rule.rpartition(":")[2]

    def series_label(self, arm: str | None = None) -> str:
        """Return the short name of a curve, by the arm's label or another one of the same curve."""
        mode = "" if self.reproduction == "ours" else f" {self.reproduction}"
        return f"{arm or self.arm_name()}{mode} {self.nm.label()}"

    def decoded_in(self) -> str:
        """Return the dtype of the weights that the engine decodes with."""
        has_own_weights = self.engine.name == "vllm" or self.sharded()
        return self.engine.dtype if has_own_weights else self.model.dtype

    def scores_what_is_sampled(self) -> bool:
        """Return whether the trainer's log-probs are of the distribution that the engine samples.

        They are not if only the engine divides the logits by the temperature, or if vLLM samples
        from the `sampling.top_k` likeliest tokens alone, whose log-probs are then its own.
        """
        truncated = self.sampling.top_k is not None and self.engine.name == "vllm"
        same = self.update.logprob_temperature == "sampling" or self.sampling.temperature == 1
        return same and not truncated

    def sharded(self) -> bool:
        """Tell whether the run shards its weights, on any number of processes."""
        if self.model.tuning != "full":
            return False
        cast = self.computed_in() != self.model.dtype  # which FSDP2 does
        return self.hardware.shard or cast

    def computed_in(self) -> str:
        """Return the dtype that the update computes in."""
        return self.model.compute_dtype or self.model.dtype

    def uses_fsdp(self, processes: int) -> bool:
        """Tell whether the model is under FSDP2, which also casts weights for the computation."""
        return self.sharded() and (processes > 1 or self.computed_in() != self.model.dtype)
