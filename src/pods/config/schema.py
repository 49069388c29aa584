"""Every key of a run's config: its type, the values it allows and what it means.

The keys of the method (`nm`, `sampler`, `prompts`, `update`, ...) are in `method_keys.py`. Values
live in `conf/`; rules that bind several keys live in `checks.py`. A key is *science* (it can change
what a run computes, so it is part of the run's identity) unless it is marked `operational`.
Standard library only, because every command imports this module.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pods.config.key import FILE_NAME, FUNCTION, key
from pods.config.method_keys import (
    AdvantageConfig,
    GroupFilterConfig,
    NmConfig,
    PromptsConfig,
    SamplerConfig,
    SamplingConfig,
    UpdateConfig,
)

PACKAGE = Path(__file__).parents[1]
CONF = next(path for path in (PACKAGE / "conf", PACKAGE.parents[1] / "conf") if path.is_dir())
"""The folder of YAML files, in an installed wheel or in a checkout."""


AnswerFormat = Literal["tag", "hash", "boxed", "chain"]


@dataclass
class TaskConfig:
    """The problems to learn, and how answers are graded."""

    name: Literal["chainsum", "countdown", "gsm8k", "math", "jsonl", "own"] = key(
        "task to train on: chainsum and countdown (generated), GSM8K, MATH, a file of your own "
        "(jsonl), or what a function of your own returns (own)"
    )
    path: str | None = key(
        "folder with train.jsonl and test.jsonl, or for task=jsonl also one file; null uses the "
        "hub (gsm8k, math)"
    )
    test_set: Literal["own", "gsm8k", "math500", "amc23", "aime24", "minerva", "olympiad"] = key(
        "test set to evaluate on: the task's own, or GSM8K, MATH-500, AMC 2023, AIME 2024, Minerva "
        "or OlympiadBench, each graded by its own rules"
    )
    test_path: str | None = key(
        "JSON lines file with the test set; null downloads it, or uses test.jsonl in task.path if "
        "task.test_set=own"
    )
    train_size: int | None = key("number of training problems; null uses all", low=1)
    test_size: int | None = key("number of test problems; null uses all", low=1)
    few_shot: int = key("solved examples in the prompt, removed from the training problems", low=0)
    malformed: Literal["fail", "drop"] = key(
        "how to treat duplicate rows and rows without a question or a readable answer: fail, or "
        "drop and count them"
    )
    answer_format: AnswerFormat = key(
        "answer format that the prompt requests and the grader reads: <answer> tags as in the "
        "paper, #### as in GSM8K, \\boxed{} as in Qwen and R1, or that of chainsum and countdown"
    )
    format_reward: Literal["additive", "when_wrong", "open_r1", "none"] = key(
        "reward for the format, in addition to 1 for a correct answer: 0.1 format + 0.1 tags "
        "always (additive) or only for wrong answers (when_wrong), 1 format + 1 tags as in the "
        "8-GPU runs (open_r1), or none"
    )
    grader: Literal["exact", "lenient", "latex"] = key(
        "grader that decides the reward: ours (exact), or one of the PODS authors' on GSM8K: of "
        "their one-GPU runs (lenient) or of their 8-GPU runs, which needs an answer in LaTeX "
        "(latex); evaluations on GSM8K record ours and theirs"
    )
    lenient: Literal["release", "later"] = key(
        "version of the authors' grader: as released with their GSM8K results, or the later one of "
        "their Llama results"
    )
    workers: int | None = key(
        "processes that grade MATH answers during generation; null uses all cores but one, at "
        "most 8",
        low=1,
        operational=True,
    )
    system: str | None = key(
        "text file with the system message; null uses our own words, which follow "
        "task.answer_format",
        default=None,
    )
    overlong_tokens: int | None = key(
        "number of last tokens before sampling.max_completion_tokens in which a completion is "
        "punished, the more the longer it is (DAPO); null disables",
        low=1,
        default=None,
    )
    overlong_penalty: float = key(
        "what the longest completion loses of its reward if task.overlong_tokens is set",
        low=0,
        default=1.0,
    )

    question_key: str = key("key of the question in a row of task=jsonl", default="question")
    answer_key: str = key(
        "key of the answer in a row of task=jsonl: a number, a text, or a worked solution that "
        "ends in #### and the answer",
        default="answer",
    )
    test_fraction: float | None = key(
        "share of the rows of task=jsonl that become the test set, the same for every seed; null "
        "where the test set is a file of its own",
        above=0,
        high=0.9,
        default=None,
    )
    make: str | None = key(
        "module:function that returns the problems of task=own",
        form=FUNCTION,
        default=None,
    )
    reward: list[str] | None = key(
        "what the reward is the sum of: correct, format, graded (the share of a chain that is "
        "right, or how near countdown's target is), and functions of your own as module:function, "
        "each with a weight if *NUMBER follows it; null: correct, and format as task.format_reward "
        "says",
        default=None,
    )

    def label(self) -> str:
        """Return the name of the problems in folders and titles, also of data of one's own.

        data/my sums.jsonl is my-sums, and my_tasks:riddles is riddles.
        """
        if self.name == "jsonl" and self.path is not None:
            return re.sub(r"[^A-Za-z0-9._-]", "-", Path(self.path).stem)[:60] or self.name
        return self.make.rpartition(":")[2] if self.name == "own" and self.make else self.name

    def test_label(self) -> str:
        """Return the name of the test set for a reader, also of data of one's own."""
        return self.label() if self.name in ("jsonl", "own") else self.evaluated_on()

    def evaluated_on(self) -> str:
        """Return the name of the test set: chainsum, gsm8k, math500, amc23, ..."""
        own = "math500" if self.name == "math" else self.name
        return own if self.test_set == "own" else self.test_set

    def files(self) -> dict[str, Path | None]:
        """Return the file of each split; None: on the hub, or generated (chainsum, own).

        Both are the same file where `task.test_fraction` divides it.
        """
        folder = None if self.path is None else Path(self.path)
        if self.name == "jsonl" and folder is not None and not folder.is_dir():
            return {"train": folder, "test": Path(self.test_path or folder)}
        test = folder / "test.jsonl" if folder and self.test_set == "own" else None
        return {
            "train": folder and folder / "train.jsonl",
            "test": test if self.test_path is None else Path(self.test_path),
        }


@dataclass
class LoraConfig:
    """Low-rank adapters (PEFT), used if model.tuning=lora."""

    r: int = key("rank of the LoRA adapters", low=1)
    alpha: int = key("LoRA scale: the weights change by alpha / r * B A", low=1)
    targets: list[str] = key("names of the linear layers that get an adapter")


@dataclass(kw_only=True)
class ModelConfig:
    """The policy."""

    name: str = key("label of the model in run folders", form=FILE_NAME)
    path: str | None = key(
        "folder with the weights, or with a LoRA adapter (a checkpoint's `policy`) that is merged "
        "into the model's own; null uses what `pods fetch` stored, else the hub"
    )
    hub: str | None = key("name on the Hugging Face hub; null: the model ships with the package")
    dtype: Literal["float32", "bfloat16"] = key("dtype of the policy's weights, frozen or trained")
    tuning: Literal["lora", "full"] = key("train LoRA adapters or all weights")
    lora: LoraConfig
    quantization: Literal["none", "nf4"] = key(
        "round the frozen weights under the adapters to 4 bits (nf4, as QLoRA; with bitsandbytes), "
        "or do not; they are stored in model.dtype either way, so no memory is saved"
    )
    few_shot: int = key("number of examples that this model needs to see the format", low=0)
    answer_format: AnswerFormat = key(
        "answer format that this model was trained on; tasks with several formats ask for it"
    )
    compute_dtype: Literal["float32", "bfloat16"] | None = key(
        "dtype that the update computes in; weights, gradients and moments stay in model.dtype; "
        "another one needs model.tuning=full, and shards as hardware.shard does; null: model.dtype",
        default=None,
    )


@dataclass
class EngineConfig:
    """The engine that generates rollouts; the keys from `sync` on are for vLLM."""

    name: Literal["transformers", "vllm"] = key("inference engine")
    max_rows: int = key("largest number of sequences decoded at once", low=1)
    evaluation_chunk: int | None = key(
        "answers that an evaluation generates and writes at a time; an interrupted evaluation "
        "resumes after the last chunk; null uses one chunk per checkpoint",
        low=1,
    )
    dtype: Literal["float32", "bfloat16", "float16"] = key(
        "dtype of the engine's own weights: vLLM's, or the full copy of sharded weights"
    )
    sync: Literal["merged", "adapter", "adapter_file"] = key(
        "how weights reach vLLM: merged into its weights, or as a separate adapter, in memory or "
        "through files (an adapter needs model.tuning=lora)"
    )
    kv_gb: float | None = key(
        "GiB of memory for keys and values; null derives it from gpu_memory_utilization", above=0
    )
    gpu_memory_utilization: float = key(
        "share of GPU memory for weights, keys and values if kv_gb is null", above=0, high=1
    )
    batch_invariant: bool = key(
        "use vLLM's slower kernels whose log-probs do not depend on the batch (GPU only)"
    )
    min_kept: float = key(
        "the run stops if rounding to engine.dtype in a merge keeps less than this fraction of "
        "the policy's change, or more than 2 minus it; 0 disables the check",
        low=0,
        high=1,
        operational=True,
    )
    gap_bound: float | None = key(
        "mean |engine log-prob - trainer log-prob| of the kept tokens above which an alarm is "
        "raised if the engine has its own weights; null uses 1e-4 if both are float32, else 0.05",
        above=0,
        operational=True,
    )
    gap_limit: int = key(
        "consecutive steps above gap_bound after which the run fails", low=1, operational=True
    )
    older_runner: bool = key(
        "use vLLM's first model runner and synchronous scheduling, as on a CPU, where the newer "
        "ones that it chooses on a card fail",
        default=False,
    )


@dataclass
class HardwareConfig:
    """The devices of one run."""

    name: str = key("label of the hardware", form=FILE_NAME, operational=True)
    device: Literal["cpu", "cuda"] = key("device of the model")
    threads: int = key("CPU threads per process, set before torch is loaded", low=1)
    processes: int = key(
        "processes per run, each on its own GPU; changes results only by rounding",
        low=1,
        operational=True,
    )
    shard: bool = key(
        "if model.tuning=full, also shard weights, gradients and optimizer state over the "
        "processes (FSDP2); the transformers engine then uses a full copy in engine.dtype"
    )
    keep_gathered: bool = key(
        "keep sharded weights gathered, and gradients whole, until the last micro-batch of an "
        "optimizer update: one exchange in place of one per micro-batch, for more memory",
        default=False,
    )


@dataclass
class BudgetConfig:
    """The end of training, whichever limit comes first."""

    train_seconds: float | None = key("seconds of training clock; null sets no limit", above=0)
    max_steps: int | None = key("number of steps; null sets no limit", low=0)
    clock: Literal["measured", "modelled"] = key(
        "training clock: measured, or advanced per step by the prices of budget.clock_model",
        default="measured",
    )
    clock_model: str | None = key(
        "prices of budget.clock=modelled: l40s, h100x8, or a JSON file with base, per_rollout, "
        "per_kept (seconds) and source",
        default=None,
    )

    def clock_text(self) -> str:
        """Return where the training seconds come from."""
        return (
            "measured" if self.clock_model is None else f"modelled by {Path(self.clock_model).name}"
        )


@dataclass
class EvaluationConfig:
    """The evaluation of each checkpoint."""

    repeats: int = key("independently sampled passes over the test questions", low=1)
    questions: int | None = key("use the first N test questions in every run; null uses all", low=1)
    temperature: float = key("sampling temperature of evaluations; 0 is greedy decoding", low=0)
    sets: list[str] = key(
        "further test sets to evaluate each checkpoint on: gsm8k, math500, amc23, aime24, minerva, "
        "olympiad; they change nothing else in a run",
        default=[],
        operational=True,
    )
    sets_path: str | None = key(
        "folder with NAME.jsonl of each further test set; null downloads them",
        default=None,
        operational=True,
    )

    save_completions: bool = key(
        "keep the completions of the first pass of each evaluation, to read them in the report",
        default=False,
        operational=True,
    )

    def set_file(self, name: str) -> Path | None:
        """Return the file of a further test set; None: on the hub."""
        return None if self.sets_path is None else Path(self.sets_path) / f"{name}.jsonl"


@dataclass
class CheckpointConfig:
    """The checkpoints that are saved and evaluated, besides step 0 and the end of the budget."""

    every_steps: int | None = key("save a checkpoint every N steps; null disables", low=1)
    every_train_seconds: float | None = key(
        "save a checkpoint every N seconds of training clock; null disables", above=0
    )


@dataclass
class TrackingConfig:
    """The copies of a run's metrics for W&B and TensorBoard."""

    wandb: Literal["none", "offline", "online"] = key("W&B mode", operational=True)
    project: str = key("W&B project", operational=True)
    entity: str | None = key("W&B entity; null uses your default", operational=True)
    tensorboard: bool = key(
        "also write TensorBoard files into the run folder (needs tensorboardX)", operational=True
    )


@dataclass
class LaunchConfig:
    """The execution of a sweep's jobs."""

    on: Literal["local", "slurm", "ray"] = key("where a sweep's jobs run", operational=True)
    jobs: int | None = key(
        "jobs that run at once; null fits as many as there are GPUs (hardware.processes per job) "
        "or cores (hardware.processes * hardware.threads per job), and all jobs on a cluster",
        low=1,
        operational=True,
    )
    fork_server: bool = key(
        "on this machine, fork jobs from a process that has already imported their libraries; "
        "jobs that use CUDA, vLLM or several processes always start fresh",
        default=True,
        operational=True,
    )


@dataclass(kw_only=True)
class Config:
    """The config of one run."""

    seed: int = key("seed of prompt order, sampling, selection and adapter initialization", low=0)
    study: str = key("folder of the runs to compare", form=FILE_NAME, operational=True)
    arm: str | None = key(
        "label of the run's curve; null uses the rule's name", form=FILE_NAME, operational=True
    )
    reproduction: Literal["ours", "faithful"] = key(
        "label of the group reproduction=, which sets the keys in which a paper's code differs "
        "from our own choices",
        default="ours",
        operational=True,
    )
    runs_dir: str = key("folder that holds all studies", operational=True)
    retry: Literal["none", "failed", "noisy", "all"] = key(
        "failed: rerun jobs that failed; noisy: run again, from the start, the finished runs of a "
        "sweep that a busy machine slowed down; all: run again, from the start, whatever is done",
        operational=True,
    )
    allow_changed: bool = key(
        "resume a run even if its frozen config, data, weights, rule, or a minor version of "
        "torch, transformers, peft or vllm has changed; the run is marked as changed",
        operational=True,
    )
    dry_run: bool = key("only list the jobs, what they need and cost", operational=True)
    watchdog_seconds: float | None = key(
        "seconds without a heartbeat after which a hanging job is ended, ready to be resumed "
        "(four times as long during start-up); null disables",
        above=0,
        operational=True,
    )
    prompts_per_step: int = key("prompts per step", low=1)
    rollouts_every_steps: int | None = key(
        "save rollouts every N steps; null disables", low=1, operational=True
    )
    task: TaskConfig
    model: ModelConfig
    sampler: SamplerConfig
    nm: NmConfig
    prompts: PromptsConfig
    group_filter: GroupFilterConfig
    sampling: SamplingConfig
    advantage: AdvantageConfig
    update: UpdateConfig
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

    def decoded_in(self) -> str:
        """Return the dtype of the weights that the engine decodes with."""
        has_own_weights = self.engine.name == "vllm" or self.sharded()
        return self.engine.dtype if has_own_weights else self.model.dtype

    def scores_what_is_sampled(self) -> bool:
        """Return whether the trainer's log-probs are of the distribution that the engine samples.

        They are not where only the engine divides the logits by the temperature.
        """
        return self.update.logprob_temperature == "sampling" or self.sampling.temperature == 1

    def sharded(self) -> bool:
        """Tell whether the run shards its weights, on any number of processes."""
        cast = self.computed_in() != self.model.dtype  # which FSDP2 does
        return (self.hardware.shard or cast) and self.model.tuning == "full"

    def computed_in(self) -> str:
        """Return the dtype that the update computes in."""
        return self.model.compute_dtype or self.model.dtype

    def uses_fsdp(self, processes: int) -> bool:
        """Tell whether the model is under FSDP2, which also casts weights for the computation."""
        return self.sharded() and (processes > 1 or self.computed_in() != self.model.dtype)
