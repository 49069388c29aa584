"""Every key of a run's config: its type, the values it allows and what it means.

The keys of the method (`nm`, `sampler`, `prompts`, `update`, ...) are in `method_keys.py`, those of
`task` in `task_keys.py`. Values live in `conf/`; rules that bind several keys in `checks.py`. A key
is *science* (it can change what a run computes, so it is part of the run's identity) unless it is
marked `operational`. Every command imports this module, so it imports nothing heavy.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pods.config import method_keys as method
from pods.config.key import Amount, Count, FileName, Flag, Positive, Text, Whole, key, operational
from pods.config.plan import PlanConfig
from pods.config.task_keys import TaskConfig

PACKAGE = Path(__file__).parents[1]
CONF = next(path for path in (PACKAGE / "conf", PACKAGE.parents[1] / "conf") if path.is_dir())
"""The folder of YAML files, in an installed wheel or in a checkout."""
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that get an adapter, as in the PODS authors' code; of other models all linear ones."""


@dataclass
class LoraConfig:
    """Low-rank adapters (PEFT), used if model.tuning=lora."""

    r: Annotated[Count, key("rank of the LoRA adapters")]
    alpha: Annotated[Count, key("LoRA scale: the weights change by alpha / r * B A")]


@dataclass
class SizesConfig:
    """The sizes of the model, by which memory is forecast before its weights are here."""

    parameters: Annotated[
        Whole, operational("numbers in all weights; 0: unknown, as all sizes of hub")
    ]
    layers: Annotated[Whole, operational("layers, each with attention and a gated part")]
    hidden: Annotated[Whole, operational("width of a layer's input")]
    intermediate: Annotated[Whole, operational("width of the gated part")]
    heads: Annotated[Whole, operational("heads of queries")]
    kv_heads: Annotated[Whole, operational("heads of keys, and of values")]
    head_size: Annotated[Whole, operational("width of a head")]
    vocabulary: Annotated[Whole, operational("rows of the embedding")]


@dataclass
class ModelConfig:
    """The policy."""

    name: Annotated[FileName, key("label of the model in run folders")]
    path: Annotated[
        Text | None,
        key(
            "folder of weights, or of a LoRA adapter to merge (`pods fetch` makes one of a GGUF); "
            "null: what `pods fetch` stored, else the hub"
        ),
    ]
    hub: Annotated[
        Text | None, key("name on the Hugging Face hub; null: the model ships with the package")
    ]
    dtype: Annotated[
        Literal["float32", "bfloat16"], key("dtype of the policy's weights, frozen or trained")
    ]
    tuning: Annotated[Literal["lora", "full"], key("train LoRA adapters or all weights")]
    lora: LoraConfig
    sizes: SizesConfig
    compute_dtype: Annotated[
        Literal["float32", "bfloat16"] | None,
        key(
            "dtype that the update of all weights (model.tuning=full) computes in; null: "
            "model.dtype"
        ),
    ]

    def adapter(self) -> Path | None:
        """Return `path` if it holds an adapter: it is merged into the weights that it was for."""
        if self.path is None:
            return None
        folder = Path(self.path)
        if (folder / "config.json").is_file():  # whole weights
            return None
        return folder if (folder / "adapter_config.json").is_file() else None


@dataclass
class EngineConfig:
    """The engine of rollouts; `sync` and `kv_gb` are for vLLM."""

    name: Annotated[Literal["transformers", "vllm"], key("inference engine")]
    max_rows: Annotated[
        Count, key("most sequences decoded at once; transformers also evaluates in such chunks")
    ]
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        key("dtype of the engine's own weights: vLLM's, or the full copy of sharded weights"),
    ]
    sync: Annotated[
        Literal["merged", "adapter"],
        key("how weights reach vLLM: merged, or as an adapter (which needs model.tuning=lora)"),
    ]
    kv_gb: Annotated[Positive, key("GiB for vLLM's keys and values")]
    graphs: Annotated[
        Literal["full", "none"], operational("CUDA graphs and compiled layers of vLLM")
    ]
    lag: Annotated[Whole, key("draw a step's rollouts from weights of so many updates before")]


@dataclass
class HardwareConfig:
    """The devices of one run."""

    device: Annotated[Literal["cpu", "cuda"], key("device of the model")]
    threads: Annotated[Count, key("CPU threads per process, set before torch is loaded")]
    processes: Annotated[Count, operational("processes that train a run, each on its own GPU")]
    shard: Annotated[
        Flag,
        key(
            "shard all trained weights, gradients and moments over the processes (FSDP2); the "
            "transformers engine then uses a full copy in engine.dtype"
        ),
    ]


@dataclass
class BudgetConfig:
    """The end of training, whichever limit comes first; a larger one trains a run on."""

    train_seconds: Annotated[
        Positive | None,
        operational(
            "seconds of training clock: generate, reward, select, update and sync of committed "
            "steps, without start, checkpoints and evaluations; null sets no limit"
        ),
    ]
    max_steps: Annotated[Whole | None, operational("number of steps; null sets no limit")]

    def is_spent(self, step: int, train_seconds: float) -> bool:
        """Return whether a run whose training clock shows `train_seconds` ends after a step."""
        if self.max_steps is not None and step >= self.max_steps:
            return True
        return self.train_seconds is not None and train_seconds >= self.train_seconds

    def text(self) -> str:
        """Return the budget for a reader, such as 30 s or 100 steps."""
        parts = []
        if self.train_seconds is not None:
            parts.append(f"{self.train_seconds:g} s")
        if self.max_steps is not None:
            parts.append(f"{self.max_steps} steps")
        return " or ".join(parts)


@dataclass
class EvaluationConfig:
    """The evaluation of each checkpoint."""

    repeats: Annotated[Count, key("independently sampled passes over the test questions")]
    questions: Annotated[
        Count | None, key("use the first N test questions in every run; null uses all")
    ]
    temperature: Annotated[Amount, key("sampling temperature of evaluations; 0 is greedy decoding")]


@dataclass
class CheckpointConfig:
    """The checkpoints that are saved and evaluated, besides step 0 and the end of the budget."""

    every_steps: Annotated[Count | None, key("save a checkpoint every N steps; null disables")]
    every_train_seconds: Annotated[
        Positive | None, key("save one every N seconds of training clock")
    ]


@dataclass
class TrackingConfig:
    """The copy of a run's metrics for a tracker, in the project `WANDB_PROJECT`, or else pods."""

    mode: Annotated[
        Literal["none", "offline", "online", "tensorboard", "trackio"],
        operational("tracker: W&B (offline: in the run folder), TensorBoard, Trackio"),
    ]


@dataclass
class LaunchConfig:
    """The execution of a sweep's jobs."""

    on: Annotated[Literal["local", "slurm", "ray"], operational("where a sweep's jobs run")]
    jobs: Annotated[
        Count | None, operational("jobs at once; null: by GPUs or cores, all on a cluster")
    ]


@dataclass
class Config:
    """The config of one run."""

    seed: Annotated[
        Whole, key("seed of prompt order, sampling, selection and adapter initialization")
    ]
    study: Annotated[FileName, operational("folder of the runs to compare")]
    arm: Annotated[FileName | None, operational("label of the curve; null: the rule's name")]
    label_settings: Annotated[
        list[Text],
        operational("what the files of arm and reproduction set, as KEY=VALUE; pods fills it in"),
    ]
    reproduction: Annotated[Literal["ours", "faithful"], operational("our choices, or the papers'")]
    runs_dir: Annotated[Text, operational("folder that holds all studies")]
    retry: Annotated[
        Literal["none", "failed", "changed", "all"],
        operational(
            "run again what has failed; changed: also resume, and mark, runs although what they "
            "are made of has changed; all: also remove and repeat what is done"
        ),
    ]
    dry_run: Annotated[Flag, operational("only list the jobs, what they need and cost")]
    watchdog_seconds: Annotated[
        Positive | None,
        operational(
            "end a job after N seconds without a heartbeat, 4 N at its start; null disables"
        ),
    ]
    prompts_per_step: Annotated[Count, key("prompts per step")]
    rollouts_every_steps: Annotated[
        Count | None, operational("save rollouts every N steps; null: never")
    ]
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
    plan: PlanConfig

    def on(self, processes: int) -> "Config":
        """Return the same run on another number of processes."""
        return replace(self, hardware=replace(self.hardware, processes=processes))

    def arm_name(self) -> str:
        """Return the label of the arm, or the rule's name without its module."""
        return self.arm or self.sampler.rule.rpartition(":")[2]

    def series_label(self, arm: str | None = None) -> str:
        """Return the short name of a curve, by the arm's label or another one of the same curve."""
        name = arm or self.arm_name()
        if self.reproduction != "ours":
            name += f" {self.reproduction}"
        return f"{name} {self.nm.label()}"

    def decoded_in(self) -> str:
        """Return the dtype of the weights that the engine decodes with."""
        if self.engine.name == "vllm" or self.sharded():  # it has weights of its own
            return self.engine.dtype
        return self.model.dtype

    def scores_what_is_sampled(self) -> bool:
        """Return whether the trainer's log-probs are meant to equal the engine's.

        They are not if only the engine divides the logits by the temperature.
        """
        return self.update.logprob_temperature == "sampling" or self.sampling.temperature == 1

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
