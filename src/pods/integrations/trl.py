"""PODS in TRL: a GRPOTrainer that generates n rollouts per prompt and trains on the m kept ones.

Each generation has two passes. The first generates and rewards all n with TRL's own methods, and a
rule keeps m. The second is TRL's `_generate_and_score_completions` on the kept rollouts: where it
would generate and reward it gets what is there already, and it thinks of groups of m. So padding,
old and reference log-probs, advantages and logs are TRL's own code, on m rollouts instead of n.

Shapes: n = `num_generations`, m = `keep`, G = groups of a generation on all processes, F = reward
functions.
"""

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, cast

if find_spec("trl") is None:
    raise ImportError("TRL is not installed: pip install 'pods-rl[trl]'")

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from pods.method.grpo import advantages
from pods.method.rules import RULES, Indices, Rule, find_rule, is_across_groups, keep
from pods.seeding import derive
from pods.types import Group, Rollout

CORRECT = 0.5  # a rollout is right where its first reward function gives more
EPS = 1e-4  # TRL adds it to the standard deviation
GENERATED = 8  # values that TRL's _generate returns
OVERRIDDEN = {
    "_generate_and_score_completions": ["self", "inputs"],
    "_generate": ["self", "prompts"],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
}


def _check_insides(trainer: type) -> None:
    """Check that TRL has the methods that are overridden here.

    Raises:
        ImportError: it has them no longer, or with other arguments.
    """
    for name, expected in OVERRIDDEN.items():
        method = getattr(trainer, name, None)
        if method is None or [*inspect.signature(method).parameters] != expected:
            raise _moved(f"GRPOTrainer.{name}({', '.join(expected)})")


def _moved(what: str) -> ImportError:
    return ImportError(
        f"TRL {version('trl')} has no {what} as TRL 1.16.0 has: pip install 'pods-rl[trl]'"
    )


_check_insides(GRPOTrainer)


@dataclass(frozen=True, slots=True)
class _Row:
    """One rollout as TRL holds it."""

    prompt: Any
    prompt_ids: list[int]
    completion_ids: list[int]
    tool_mask: list[int] | None
    completion: Any
    logprobs: list[float] | None
    logged: Mapping[str, Any]
    """What reward functions gave to `log_extra` for it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The kept rollouts: those of this process, and the rewards of all."""

    rows: Sequence[_Row]
    rewards: Tensor
    """(G m, F)"""


class PODSTrainer(GRPOTrainer):
    """A GRPOTrainer that trains on the `keep` of `num_generations` rollouts that a rule chooses."""

    num_generations: int

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: GRPOConfig,
        train_dataset: Any,
        *,
        keep: int,
        rule: str | Rule = "max_variance",
        baseline: str = "selected",
        **options: Any,
    ) -> None:
        """Check the selection, and then load the model.

        Args:
            model, reward_funcs, args, train_dataset, options: as GRPOTrainer takes them.
            keep: m, the rollouts of each group that are trained on.
            rule: the name of a rule, `module:function`, or the function.
            baseline: `selected` compares each kept reward with the kept ones (PODS, Algorithm 1);
                `full` with all n of its group.

        Raises:
            ValueError: an argument is not allowed; no model has been loaded.
        """
        self.keep, self.baseline = keep, baseline
        self.rule = _checked_rule(rule, args.num_generations, keep)
        _check_options(args, train_dataset, keep, baseline, options)
        self._kept: _Kept | None = None
        super().__init__(model, reward_funcs, args, train_dataset, **options)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return dict(super()._generate_and_score_completions(inputs))
        times = [time.perf_counter()]
        rows, extra = self._generated(inputs)
        times.append(time.perf_counter())
        rows, rewards = self._rewarded(inputs, rows, extra)
        times.append(time.perf_counter())
        rows = gather_object(rows)  # groups can lie on several processes
        weights = self.reward_weights.to(rewards.device)
        totals = (rewards * weights).nansum(dim=1)
        totals[rewards.isnan().all(dim=1)] = torch.nan  # as TRL: no function scored it
        groups = totals.double().cpu().numpy().reshape(-1, self.num_generations)
        correct = (rewards[:, 0] > CORRECT).cpu().numpy().reshape(groups.shape)
        kept = self._select(groups, correct, rows)
        all_kept = (kept + self.num_generations * np.arange(len(kept))[:, None]).ravel()
        times.append(time.perf_counter())
        with self._replaying([rows[i] for i in all_kept], rewards[all_kept.tolist()]) as local:
            output = dict(super()._generate_and_score_completions(local))
        if len(output["completion_ids"]) != len(local):
            raise _moved("_generate_and_score_completions")
        if self.baseline == "full":
            self._compare_with_full(output, groups, kept)
        self._log(rewards, groups)
        times.append(time.perf_counter())
        phases = ("generate", "reward", "select", "score")
        for name, seconds in zip(phases, np.diff(times).tolist(), strict=True):
            self._metrics["train"][f"seconds/{name}"].append(seconds)
        return output

    def _generate(self, prompts: list[Any]) -> Any:
        if self._kept is None:
            return super()._generate(prompts)
        rows = self._kept.rows
        return (
            [row.prompt_ids for row in rows],
            [row.completion_ids for row in rows],
            None if rows[0].tool_mask is None else [row.tool_mask for row in rows],
            [row.completion for row in rows],
            None if rows[0].logprobs is None else [row.logprobs for row in rows],
            {}, None, [],
        )  # fmt: skip

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Tensor:
        if self._kept is not None:
            return self._kept.rewards
        rewards: Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        return rewards

    def _generated(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[list[_Row], dict[str, Any]]:
        """Generate all rollouts of this process; return them, and a rollout function's extras."""
        prompts = [row["prompt"] for row in inputs]
        generated = self._generate(prompts)
        if len(generated) != GENERATED:
            raise _moved(f"_generate with {GENERATED} values")
        prompt_ids, completion_ids, tool_mask, completions, logprobs, extra, _, _ = generated
        nothing = [None] * len(prompts)
        columns: Sequence[Sequence[Any]] = (
            prompts, prompt_ids, completion_ids, tool_mask or nothing, completions,
            logprobs or nothing, [{}] * len(prompts),
        )  # fmt: skip
        return [_Row(*values) for values in zip(*columns, strict=True)], extra

    def _rewarded(
        self, inputs: Sequence[Mapping[str, Any]], rows: list[_Row], extra: Mapping[str, Any]
    ) -> tuple[list[_Row], Tensor]:
        """Return the rows with what was logged for each, and the rewards of all processes."""
        inputs = [
            {**row, **{k: v[i] if isinstance(v, list) else v for k, v in extra.items()}}
            for i, row in enumerate(inputs)
        ]
        rewards = self._calculate_rewards(
            inputs, [row.prompt for row in rows], [row.completion for row in rows],
            [row.completion_ids for row in rows],
        )  # fmt: skip
        logged = self._pending_extra_logs
        rows = [
            _Row(row.prompt, row.prompt_ids, row.completion_ids, row.tool_mask, row.completion,
                 row.logprobs, {name: values[i] for name, values in logged.items()})
            for i, row in enumerate(rows)
        ]  # fmt: skip
        return rows, rewards

    def _select(
        self, rewards: NDArray[np.float64], correct: NDArray[np.bool_], rows: Sequence[_Row]
    ) -> NDArray[np.intp]:
        """Apply the rule to each group, the same on every process.

        A rollout that no function scored (all gave None) is kept only where too few were scored.

        Returns:
            (G, m) indices into each group.
        """
        n, kept = self.num_generations, list[Indices]()
        part = self._step % self.args.gradient_accumulation_steps
        for g, values in enumerate(rewards):
            scored, unscored = np.flatnonzero(~np.isnan(values)), np.flatnonzero(np.isnan(values))
            if len(scored) < self.keep:
                fill = unscored[: self.keep - len(scored)]
                kept.append(np.sort(np.concatenate([scored, fill])))
                continue
            members = [self._rollout(rows[g * n + i]) for i in scored.tolist()]
            lengths = np.array([len(member.completion_ids) for member in members])
            group = Group(values[scored], correct[g][scored], lengths, members)
            seed = derive(self.args.seed, "rule", self.state.global_step, part, g)
            rng = np.random.default_rng(seed)
            kept.append(scored[keep(self.rule, group, self.keep, rng)])
        return np.stack(kept)

    def _rollout(self, row: _Row) -> Rollout:
        """Return a rollout as a rule sees it; TRL knows log-probs only of vLLM."""
        completion = row.completion
        text = completion if isinstance(completion, str) else completion[-1].get("content") or ""
        unknown = [np.nan] * len(row.completion_ids)
        return Rollout(
            tuple(row.prompt_ids), tuple(row.completion_ids),
            np.array(row.logprobs or unknown, dtype=np.float32),
            text, row.completion_ids[-1] in self.eos_token_ids,
        )  # fmt: skip

    @contextmanager
    def _replaying(self, rows: Sequence[_Row], rewards: Tensor) -> Iterator[list[dict[str, Any]]]:
        """Let TRL's methods see groups of m: the kept rollouts, of which this process has a share.

        Yields:
            The inputs of this process's share.
        """
        size, first = len(rows) // self.accelerator.num_processes, self.accelerator.process_index
        local = rows[first * size : (first + 1) * size]
        n, self.num_generations = self.num_generations, self.keep
        self._kept = _Kept(local, rewards)
        for name in list(self._pending_extra_logs):
            self._pending_extra_logs[name] = [row.logged.get(name) for row in local]
        for column in self._logs.values():
            column.clear()  # its length is that of n rollouts, so that old rows would stay
        try:
            yield [{"prompt": row.prompt} for row in local]
        finally:
            self.num_generations, self._kept = n, None

    def _compare_with_full(
        self, output: dict[str, Any], rewards: NDArray[np.float64], kept: NDArray[np.intp]
    ) -> None:
        """Replace the advantages by those over all n rewards of each group."""
        scale = "std" if self.scale_rewards == "group" else "none"
        values = np.zeros_like(rewards)
        for row, group in zip(values, rewards, strict=True):
            if len(scored := np.flatnonzero(~np.isnan(group))):
                row[scored] = advantages(
                    group[scored], np.arange(len(scored)),
                    baseline="full", scale=scale, ddof=1, eps=EPS,
                )  # fmt: skip
        flat = np.take_along_axis(values, kept, axis=1).ravel()
        old = output["advantages"]
        first = self.accelerator.process_index * len(old)
        output["advantages"] = torch.from_numpy(flat).to(old)[first : first + len(old)]
        self._logs["advantages"].clear()
        self._logs["advantages"].extend(flat.tolist())

    def _log(self, rewards: Tensor, groups: NDArray[np.float64]) -> None:
        """Log TRL's reward metrics of all n rollouts under their names, of the kept as `kept/…`."""
        mean, std = _mean_and_std(groups.ravel())
        flat = [float(np.ptp(group[~np.isnan(group)]) == 0) if (~np.isnan(group)).any() else 1.0
                for group in groups]  # fmt: skip
        values = {"reward": mean, "reward_std": std, "frac_reward_zero_std": float(np.mean(flat))}
        columns = rewards.double().cpu().numpy().T
        for name, column in zip(self.reward_func_names, columns, strict=True):
            values[f"rewards/{name}/mean"], values[f"rewards/{name}/std"] = _mean_and_std(column)
        metrics = self._metrics["train"]
        for name, value in values.items():
            metrics[f"kept/{name}"].append(metrics[name].pop())
            metrics[name].append(value)


def _mean_and_std(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and sample standard deviation of what is not NaN."""
    values = values[~np.isnan(values)]
    mean = values.mean() if len(values) else np.nan
    return float(mean), float(values.std(ddof=1) if len(values) > 1 else np.nan)


def _checked_rule(rule: str | Rule, n: int, m: int) -> Rule:
    """Return the rule's function.

    Raises:
        ValueError: there is none, or it cannot keep m of n.
    """
    if not 1 < m <= n:
        raise ValueError(f"keep={m}: must be from 2 to num_generations={n}")
    try:
        found = find_rule(rule) if isinstance(rule, str) else rule
        if is_across_groups(found):
            raise ValueError("must choose within one group, since TRL's groups have equal sizes")
        function = cast(Rule, found)
        if function in RULES.values():  # such as `all`, which keeps no fewer than n
            ones = np.ones(n)
            function(Group(ones, ones > 0, np.ones(n, np.int64)), m, np.random.default_rng(0))
    except ValueError as error:
        raise ValueError(f"rule={rule}: {error}") from None
    return function


def _check_options(
    args: GRPOConfig, dataset: Any, m: int, baseline: str, options: Mapping[str, Any]
) -> None:
    """Check what TRL could do with n rollouts, but not with m of them.

    Raises:
        ValueError: one line with the argument, its value and what is allowed.
    """
    share = args.per_device_train_batch_size * m / args.num_generations
    plain = args.multi_objective_aggregation == "sum_then_normalize"
    images = sorted({"image", "images"} & next(iter(dataset)).keys())
    checks = (
        ("keep", m, share % 1 == 0,
         f"must make per_device_train_batch_size * keep / num_generations = {share:g} whole: the "
         "rollouts of a micro-batch"),
        ("baseline", baseline, baseline in ("selected", "full"), "must be selected or full"),
        ("multi_objective_aggregation", args.multi_objective_aggregation,
         plain or baseline != "full", "must be sum_then_normalize for baseline=full"),
        ("scale_rewards", args.scale_rewards, args.scale_rewards != "batch" or baseline != "full",
         "must be group or none for baseline=full"),
        ("train_dataset", images, not images, "must have no images"),
        *((name, options.get(name), not options.get(name), "must be left out with PODSTrainer")
          for name in ("tools", "environment_factory")),
    )  # fmt: skip
    for name, value, holds, allowed in checks:
        if not holds:
            raise ValueError(f"{name}={value}: {allowed}")
