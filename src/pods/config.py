"""The typed config: every key of a run, what it means and what it may be. Standard library only.

Values live in `conf/`, rules that bind keys together in `validate.py`. A key is *science* (it can
change what a run computes, and is part of the run's identity) unless it says `operational`.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

HERE = Path(__file__).parent
CONF = next(p for p in (HERE / "conf", HERE.parents[1] / "conf") if p.is_dir())  # wheel, checkout


@dataclass(frozen=True)
class Key:
    """What a config key means and may be."""

    meaning: str
    low: float = -math.inf
    """Smallest value allowed."""
    above: float = -math.inf
    """Values must be larger than this."""
    high: float = math.inf
    """Largest value allowed."""
    among: tuple[str, ...] = ()
    """The choices, where there are choices."""
    pattern: str = ""
    """What a text must match as a whole, where not every text will do."""
    form: str = ""
    """The same for a reader."""
    operational: bool = False


FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
FILE_NAME_FORM = "letters, digits, dots, - or _, at most 100: it names a file"


@dataclass
class TaskConfig:
    """What is learned."""

    name: Annotated[str, Key("task", among=("chainsum", "gsm8k", "math"))]
    path: Annotated[
        str | None, Key("folder with train.jsonl and test.jsonl; null: the hub (gsm8k, math)")
    ]
    test_set: Annotated[
        str,
        Key(
            "what is evaluated on, graded by that set's own rules: the task's test set, GSM8K's, "
            "MATH-500, or AMC 2023",
            among=("own", "gsm8k", "math500", "amc23"),
        ),
    ]
    test_path: Annotated[
        str | None,
        Key("file of JSON lines with that set; null: the hub, or task.path's test.jsonl if own"),
    ]
    train_size: Annotated[int | None, Key("problems in the train pool; null: all", low=1)]
    test_size: Annotated[int | None, Key("problems in the test set; null: all", low=1)]
    few_shot: Annotated[
        int, Key("solved examples in the prompt, taken out of the train pool", low=0)
    ]
    malformed: Annotated[
        str,
        Key(
            "rows of the data without question or readable answer, or there twice: an error, or "
            "left out and counted",
            among=("fail", "drop"),
        ),
    ]
    answer_format: Annotated[
        str,
        Key(
            "form that the prompt asks for and the grader reads: <answer> tags (the paper's), "
            "#### (GSM8K's own), \\boxed{} (Qwen, R1), or chainsum's own",
            among=("tag", "hash", "boxed", "chain"),
        ),
    ]
    format_reward: Annotated[
        str,
        Key(
            "reward of the form, beside 1 for a right answer: 0.1 form + 0.1 tags always "
            "(additive), only where it is wrong, 1 form + 1 tags as in the 8-GPU runs (open_r1; "
            "there right answers also had to be LaTeX), or never",
            among=("additive", "when_wrong", "open_r1", "none"),
        ),
    ]
    grader: Annotated[
        str,
        Key(
            "whose verdict the reward goes by: ours, or the PODS authors' lenient one; GSM8K's "
            "evaluations record both",
            among=("exact", "lenient"),
        ),
    ]
    lenient: Annotated[
        str,
        Key(
            "the authors' grader as released with their GSM8K results, or as later, of their "
            "Llama results",
            among=("release", "later"),
        ),
    ]
    workers: Annotated[
        int | None,
        Key(
            "processes that grade answers of MATH beside generation; null: one a core but one, "
            "8 at most",
            low=1,
            operational=True,
        ),
    ]

    def evaluated_on(self) -> str:
        """The test set by its name: chainsum, gsm8k, math500 or amc23."""
        own = "math500" if self.name == "math" else self.name
        return own if self.test_set == "own" else self.test_set

    def files(self) -> dict[str, Path | None]:
        """Where the train and the test split lie; None: on the hub, or nowhere (chainsum)."""
        folder = None if self.path is None else Path(self.path)
        beside = folder if self.test_set == "own" else None
        test = beside and beside / "test.jsonl"
        return {
            "train": folder and folder / "train.jsonl",
            "test": test if self.test_path is None else Path(self.test_path),
        }


@dataclass
class LoraConfig:
    """Low-rank adapters (PEFT); unused where model.tuning is full."""

    r: Annotated[int, Key("rank", low=1)]
    alpha: Annotated[int, Key("scale: the update is alpha / r * B A", low=1)]
    targets: Annotated[list[str], Key("names of the linear layers that get an adapter")]


@dataclass
class ModelConfig:
    """The policy."""

    name: Annotated[
        str, Key("label of the model in run folders", pattern=FILE_NAME, form=FILE_NAME_FORM)
    ]
    path: Annotated[
        str | None, Key("local folder with the weights; null: what `pods fetch` left, or hub")
    ]
    hub: Annotated[str | None, Key("name on the Hugging Face hub; null: ships with the package")]
    dtype: Annotated[str, Key("of the frozen or trained weights", among=("float32", "bfloat16"))]
    tuning: Annotated[str, Key("train adapters or all weights", among=("lora", "full"))]
    lora: LoraConfig
    few_shot: Annotated[int, Key("examples that this model needs to show the format", low=0)]
    answer_format: Annotated[
        str,
        Key(
            "form of answers that this model was taught, which tasks with several ask it for",
            among=("tag", "hash", "boxed", "chain"),
        ),
    ]


@dataclass
class SamplerConfig:
    """The down-sampling rule."""

    rule: Annotated[
        str,
        Key(
            "max_variance, max_variance_aliased, max_reward, percentile, max_abs_advantage, "
            "balanced, random, all, or module:function of your own",
            pattern=r"\w+|[\w.]+:\w+",
            form="a rule's name or module:function",
        ),
    ]


@dataclass
class NmConfig:
    """How many rollouts are generated, and how many trained on."""

    n: Annotated[int, Key("rollouts generated in a group", low=1)]
    m: Annotated[int, Key("rollouts kept of them", low=1)]
    groups: Annotated[int, Key("groups a prompt, each selected and normalised on its own", low=1)]


@dataclass
class GresoConfig:
    """GRESO's filter of prompts; read where prompts.selector=greso."""

    p_easy: Annotated[
        float,
        Key(
            "chance, at the start, that a problem is tried again after one group all right; "
            "after z in a row, its z-th power",
            above=0,
            high=1,
        ),
    ]
    p_hard: Annotated[float, Key("the same after groups with none right", above=0, high=1)]
    p_step: Annotated[float, Key("by which a step moves p_easy and p_hard", low=0, high=1)]
    p_min: Annotated[float, Key("p_easy and p_hard are moved no lower", above=0, high=1)]
    p_max: Annotated[float, Key("and no higher", above=0, high=1)]
    target_easy: Annotated[
        float,
        Key("share of groups all right from which on p_easy is lowered", low=0, high=1),
    ]
    target_hard: Annotated[float, Key("share of groups with none right, for p_hard", low=0, high=1)]
    adjust_after: Annotated[
        int,
        Key("groups that the shares are taken over, and p_easy and p_hard stay for", low=1),
    ]
    explore: Annotated[
        float, Key("smallest chance that a problem is tried again", low=0.001, high=1)
    ]


@dataclass
class MoppsConfig:
    """MoPPS' choice of prompts; read where prompts.selector=mopps."""

    candidates: Annotated[int, Key("problems looked at for each that is taken", low=1)]
    target: Annotated[float, Key("success rate that is looked for", low=0, high=1)]
    decay: Annotated[float, Key("of what was seen, an update; 1: nothing fades", low=0, high=1)]


@dataclass
class PromptsConfig:
    """Prompt selection, before any rollout."""

    selector: Annotated[
        str, Key("which problems a step takes", among=("uniform", "greso", "mopps"))
    ]
    greso: GresoConfig
    mopps: MoppsConfig


@dataclass
class GroupFilterConfig:
    """Groups whose rollouts all fare alike: normalised, they have no advantage, so no gradient."""

    name: Annotated[
        str,
        Key(
            "train on them all the same, skip them, or sample other prompts until there are "
            "prompts_per_step without",
            among=("none", "skip", "resample"),
        ),
    ]
    metric: Annotated[
        str,
        Key(
            "what is alike: all rewards, or all are right or all not",
            among=("reward", "correct"),
        ),
    ]
    batch: Annotated[
        int | None,
        Key("prompts sampled at once where name=resample; null: prompts_per_step", low=1),
    ]
    max_batches: Annotated[
        int, Key("such samplings a step; then it trains on what there is", low=1)
    ]
    adaptive: Annotated[
        bool,
        Key("a further sampling takes no more than seem to be needed, batch at most (GRESO)"),
    ]
    min_batch: Annotated[int, Key("prompts that an adaptive sampling takes at least", low=1)]
    margin: Annotated[float, Key("times what seems to be needed", low=1)]


@dataclass
class SamplingConfig:
    """How rollouts are drawn."""

    temperature: Annotated[float, Key("of training rollouts", above=0)]
    max_prompt_tokens: Annotated[
        int, Key("problems with longer prompts are dropped, by count", low=1)
    ]
    max_completion_tokens: Annotated[int, Key("a completion is cut here", low=1)]


@dataclass
class AdvantageConfig:
    """Advantages (r - mean) / (std + eps)."""

    over: Annotated[
        str,
        Key(
            "rewards that give mean and std: of the kept, of the full group, or none: the "
            "advantage is the reward itself",
            among=("selected", "full", "none"),
        ),
    ]
    ddof: Annotated[
        int, Key("1: sample std as in the authors' code; 0: population std", low=0, high=1)
    ]
    eps: Annotated[float, Key("added to the std", low=0)]


@dataclass
class UpdateConfig:
    """One step's optimisation (AdamW)."""

    lr: Annotated[float, Key("learning rate", above=0)]
    betas: Annotated[list[float], Key("of AdamW")]
    weight_decay: Annotated[float, Key("of AdamW, decoupled", low=0)]
    grad_clip: Annotated[float, Key("largest norm of the gradient", above=0)]
    schedule: Annotated[str, Key("of the learning rate", among=("constant", "linear", "cosine"))]
    warmup_steps: Annotated[int, Key("steps of linear warm-up", low=0)]
    schedule_steps: Annotated[
        int | None, Key("step at which a linear or cosine schedule ends", low=1)
    ]
    epochs: Annotated[int, Key("passes over a step's rollouts", low=1)]
    minibatches: Annotated[int, Key("optimizer updates a pass", low=1)]
    aggregation: Annotated[
        str,
        Key(
            "denominator of the loss: 1/(M |o|), 1/tokens, 1/(M max tokens)",
            among=("sequence_mean", "token_mean", "dr_grpo"),
        ),
    ]
    clip_low: Annotated[float, Key("PPO clip: the ratio stays above 1 - this", low=0, high=1)]
    clip_high: Annotated[float, Key("and below 1 + this (DAPO raises it)", low=0)]
    kl_beta: Annotated[
        float, Key("weight of the KL to the starting policy; 0: no reference pass", low=0)
    ]
    micro_batch_tokens: Annotated[
        int,
        Key(
            "tokens a forward pass, a prompt counted once and its completions as long as their "
            "longest; changes memory, not the gradient",
            low=1,
        ),
    ]
    activation_checkpointing: Annotated[
        bool,
        Key(
            "keep a layer's input alone and compute the layer again in the backward pass: far "
            "less memory, about a third more time"
        ),
    ]
    importance: Annotated[
        str,
        Key(
            "weight of each token for the gap between the engine's log-probs and the trainer's: "
            "none, the ratio capped, or 0 where the ratio of the token or the sequence is over "
            "the cap",
            among=("off", "token_truncate", "token_mask", "sequence_mask"),
        ),
    ]
    importance_cap: Annotated[float, Key("largest such ratio", above=0)]
    nonfinite_limit: Annotated[
        int,
        Key(
            "steps in a row whose loss, gradient or reward is NaN or infinite before the run "
            "fails; none of them is applied",
            low=1,
            operational=True,
        ),
    ]


@dataclass
class EngineConfig:
    """What generates the rollouts; from `sync` to `min_kept` the keys are for vLLM."""

    name: Annotated[str, Key("engine", among=("transformers", "vllm"))]
    max_rows: Annotated[int, Key("sequences decoded at once", low=1)]
    evaluation_chunk: Annotated[
        int | None,
        Key(
            "answers that an evaluation asks for in one call and writes together, so that one "
            "that was cut off goes on there; null: all of a checkpoint",
            low=1,
        ),
    ]
    dtype: Annotated[
        str,
        Key(
            "of the engine's own weights: vLLM's, or a copy of weights that are sharded",
            among=("float32", "bfloat16", "float16"),
        ),
    ]
    sync: Annotated[
        str,
        Key(
            "how the policy gets into the engine: merged into its weights, or as an adapter "
            "beside them (model.tuning=lora)",
            among=("merged", "adapter"),
        ),
    ]
    kv_gb: Annotated[
        float | None,
        Key("memory for keys and values, GiB; null: from gpu_memory_utilization", above=0),
    ]
    gpu_memory_utilization: Annotated[
        float,
        Key("share of the GPU for weights, keys and values where kv_gb is null", above=0, high=1),
    ]
    batch_invariant: Annotated[
        bool,
        Key("vLLM's slower kernels, which give a token the same log-prob in any batch; a GPU's"),
    ]
    min_kept: Annotated[
        float,
        Key(
            "the run stops where a merge keeps less of the policy's change, or makes more than 2 - "
            "this of it, rounding to the engine's dtype; 0: never",
            low=0,
            high=1,
            operational=True,
        ),
    ]
    gap_bound: Annotated[
        float | None,
        Key(
            "mean |log-prob of the engine - of the trainer| of the kept tokens that raises an "
            "alarm, where the engine has weights of its own; null: 1e-4 if both are in float32, "
            "else 0.05",
            above=0,
            operational=True,
        ),
    ]
    gap_limit: Annotated[
        int,
        Key("steps in a row with that alarm before the run fails", low=1, operational=True),
    ]


@dataclass
class HardwareConfig:
    """Where it runs."""

    name: Annotated[str, Key("label", pattern=FILE_NAME, form=FILE_NAME_FORM, operational=True)]
    device: Annotated[str, Key("of the model", among=("cpu", "cuda"))]
    threads: Annotated[int, Key("CPU threads a process; set before torch loads", low=1)]
    processes: Annotated[
        int,
        Key(
            "processes that one run is spread over, a GPU each; results differ by rounding",
            low=1,
            operational=True,
        ),
    ]
    shard: Annotated[
        bool,
        Key(
            "where all weights are trained: spread weights, gradients and Adam's moments over the "
            "processes too (FSDP2), and decode from a whole copy in engine.dtype"
        ),
    ]


@dataclass
class BudgetConfig:
    """When training ends: whichever comes first."""

    train_seconds: Annotated[float | None, Key("training clock; null: no limit", above=0)]
    max_steps: Annotated[int | None, Key("steps; null: no limit", low=0)]


@dataclass
class EvaluationConfig:
    """What happens at each checkpoint."""

    repeats: Annotated[int, Key("independent sampled passes over the questions", low=1)]
    questions: Annotated[
        int | None, Key("the same first N test questions in every run; null: all", low=1)
    ]
    temperature: Annotated[float, Key("of the evaluation's sampling; 0: greedy", low=0)]


@dataclass
class CheckpointConfig:
    """When a checkpoint is committed and evaluated, besides step 0 and the end."""

    every_steps: Annotated[int | None, Key("steps between checkpoints; null: none", low=1)]
    every_train_seconds: Annotated[
        float | None, Key("training clock between them; null: none", above=0)
    ]


@dataclass
class TrackingConfig:
    """The W&B mirror of the run's files."""

    wandb: Annotated[str, Key("mode", among=("none", "offline", "online"), operational=True)]
    project: Annotated[str, Key("W&B project", operational=True)]
    entity: Annotated[str | None, Key("W&B entity; null: yours", operational=True)]


@dataclass
class LaunchConfig:
    """How the jobs of a sweep are run."""

    on: Annotated[
        str,
        Key("this machine, or a cluster", among=("local", "slurm", "ray"), operational=True),
    ]
    jobs: Annotated[
        int | None,
        Key(
            "jobs at once; null: as many as GPUs, or cores, last: of GPUs a job takes "
            "hardware.processes, of cores hardware.threads times that; on a cluster all",
            low=1,
            operational=True,
        ),
    ]
    fork_server: Annotated[
        bool,
        Key(
            "on this machine, fork jobs from a process that has imported their libraries once; "
            "those on CUDA or vLLM or of several processes start afresh",
            operational=True,
        ),
    ] = True


@dataclass
class Config:
    """One run, whole."""

    seed: Annotated[int, Key("of prompt order, sampling, selection and adapter start", low=0)]
    study: Annotated[
        str,
        Key(
            "folder that gathers runs to be compared",
            pattern=FILE_NAME,
            form=FILE_NAME_FORM,
            operational=True,
        ),
    ]
    arm: Annotated[
        str | None,
        Key(
            "label of the curve; null: the rule's name",
            pattern=FILE_NAME,
            form=FILE_NAME_FORM,
            operational=True,
        ),
    ]
    runs_dir: Annotated[str, Key("where run folders go", operational=True)]
    retry: Annotated[
        str, Key("failed: run failed runs again", among=("none", "failed"), operational=True)
    ]
    allow_changed: Annotated[
        bool,
        Key(
            "go on with a run although its frozen config, data, weights, rule, or a minor version "
            "of torch, transformers, peft or vllm changed since it began; the run is marked",
            operational=True,
        ),
    ]
    dry_run: Annotated[
        bool, Key("list the jobs, what they need and will cost; run none", operational=True)
    ]
    watchdog_seconds: Annotated[
        float | None,
        Key(
            "silence after which a job that hangs is ended, to be resumed (four times that while "
            "it loads); null: never",
            above=0,
            operational=True,
        ),
    ]
    prompts_per_step: Annotated[int, Key("prompts (groups of n rollouts) a step", low=1)]
    rollouts_every_steps: Annotated[
        int | None, Key("write a step's rollouts so often; null: never", low=1, operational=True)
    ]
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
        """The same run on so many processes."""
        return replace(self, hardware=replace(self.hardware, processes=processes))

    def decoded_in(self) -> str:
        """The dtype of the weights that the engine decodes with: its own, or the policy's."""
        own = self.engine.name == "vllm" or self.sharded()
        return self.engine.dtype if own else self.model.dtype

    def sharded(self) -> bool:
        """Whether the processes of the run share its weights, however many they are now."""
        return self.hardware.shard and self.model.tuning == "full"
