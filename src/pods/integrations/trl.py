"""PODS in TRL: a GRPOTrainer that generates n rollouts per prompt and trains on the m kept ones.

Each generation has two passes. The first generates and rewards all n with TRL's own methods, and a
rule keeps m. The second is TRL's `_generate_and_score_completions` on the kept rollouts: instead of
generating and rewarding again it gets what is there already, and it sees groups of m. So padding,
old and reference log-probs, advantages and logs are TRL's own code, on m rollouts instead of n.

Shapes: n = `num_generations`, m = `keep`, G = groups of a generation on all processes, F = reward
functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

if find_spec("trl") is None or version("trl").split(".")[:2] != ["1", "16"]:
    raise ImportError("needs TRL 1.16, whose methods it overrides: pip install 'pods-rl[trl]'")

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from pods.method.keep import find_rule, keep
from pods.method.rules import RULES, Indices, Rule, is_across_groups
from pods.seeding import derive
from pods.types import Group, Rollout

CORRECT = 0.5  # a rollout is right if its first reward function gives more


class _Row(NamedTuple):
    """One rollout as TRL holds it."""

    prompt: Any
    prompt_ids: list[int]
    completion_ids: list[int]
    tool_mask: list[int] | None
    completion: Any
    logprobs: list[float] | None
    logged: Mapping[str, Any]  # what reward functions gave to `log_extra` for it


class _Kept(NamedTuple):
    """The kept rollouts, which TRL is to see in place of all."""

    rows: Sequence[_Row]  # of this process
    rewards: Tensor  # (G m, F) of all processes


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
        **options: Any,
    ) -> None:
        """Check the selection, and then load the model.

        Args:
            model, reward_funcs, args, train_dataset, options: as GRPOTrainer takes them.
            keep: m, the rollouts of each group that are trained on.
            rule: the name of a rule, `module:function`, or the function.

        `ValueError`: an argument is not allowed; no model has been loaded.
        """
        self.keep = keep
        self.rule = _checked_rule(rule, args.num_generations, keep)
        _check_options(args, train_dataset, keep, options)
        self._kept: _Kept | None = None  # during the second pass
        super().__init__(model, reward_funcs, args, train_dataset, **options)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return dict(super()._generate_and_score_completions(inputs))
        rows, rewards = self._rollouts(inputs)
        rows = gather_object(rows)  # groups can lie on several processes

        totals = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        totals[rewards.isnan().all(dim=1)] = torch.nan  # as TRL: no function scored it
        groups = totals.double().cpu().numpy().reshape(-1, self.num_generations)
        correct = (rewards[:, 0] > CORRECT).cpu().numpy().reshape(groups.shape)
        kept = self._select(groups, correct, rows)  # (G, m)

        first_rows = self.num_generations * np.arange(len(kept))[:, None]
        kept_rows = (first_rows + kept).ravel().tolist()
        with self._replaying([rows[i] for i in kept_rows], rewards[kept_rows]) as local:
            output = dict(super()._generate_and_score_completions(local))
        self._log(rewards, groups)
        return output

    def _generate(self, prompts: list[Any]) -> Any:
        if self._kept is None:
            return super()._generate(prompts)
        rows = self._kept.rows
        tool_mask = [row.tool_mask for row in rows]
        logprobs = [row.logprobs for row in rows]
        return (
            [row.prompt_ids for row in rows],
            [row.completion_ids for row in rows],
            None if tool_mask[0] is None else tool_mask,
            [row.completion for row in rows],
            None if logprobs[0] is None else logprobs,
            {},
            None,
            [],
        )

    def _calculate_rewards(self, *arguments: Any) -> Tensor:
        if self._kept is not None:
            return self._kept.rewards
        rewards: Tensor = super()._calculate_rewards(*arguments)
        return rewards

    def _rollouts(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[list[_Row], Tensor]:
        """Generate and reward all rollouts of this process; return them, and the rewards of all."""
        prompts = [row["prompt"] for row in inputs]
        prompt_ids, ids, masks, completions, logprobs, extra, _, _ = self._generate(prompts)
        with_extra = _add_fields(inputs, extra)
        rewards = self._calculate_rewards(with_extra, prompts, completions, ids)

        rows = []
        for i, prompt in enumerate(prompts):
            logged = {name: values[i] for name, values in self._pending_extra_logs.items()}
            row = _Row(
                prompt=prompt,
                prompt_ids=prompt_ids[i],
                completion_ids=ids[i],
                tool_mask=masks[i] if masks else None,
                completion=completions[i],
                logprobs=logprobs[i] if logprobs else None,
                logged=logged,
            )
            rows.append(row)
        return rows, rewards

    def _select(
        self, rewards: NDArray[np.float64], correct: NDArray[np.bool_], rows: Sequence[_Row]
    ) -> NDArray[np.intp]:
        """Apply the rule to each group, the same on every process; return (G, m) indices into them.

        A rollout that no function scored (all gave None) is kept only if too few were scored.
        """
        n = self.num_generations
        step = self.state.global_step
        generation = self._step % self.args.gradient_accumulation_steps
        kept: list[Indices] = []
        for g, values in enumerate(rewards):
            scored = np.flatnonzero(~np.isnan(values))
            if len(scored) < self.keep:
                scored_first = np.argsort(np.isnan(values), kind="stable")
                kept.append(np.sort(scored_first[: self.keep]))
                continue

            members = [self._rollout(rows[g * n + i]) for i in scored.tolist()]
            group = Group(
                rewards=values[scored],
                rewarded=correct[g][scored],
                lengths=np.array([len(member.completion_ids) for member in members]),
                rollouts=members,
            )
            rng = np.random.default_rng(derive(self.args.seed, "rule", step, generation, g))
            [chosen] = keep(self.rule, [group], self.keep, rng)
            kept.append(scored[chosen])
        return np.stack(kept)

    def _rollout(self, row: _Row) -> Rollout:
        """Return a rollout as a rule sees it; TRL knows log-probs only of vLLM."""
        text = row.completion
        if not isinstance(text, str):  # a conversation
            text = text[-1].get("content") or ""
        logprobs = row.logprobs or [np.nan] * len(row.completion_ids)
        return Rollout(
            prompt_ids=tuple(row.prompt_ids),
            completion_ids=tuple(row.completion_ids),
            logprobs=np.array(logprobs, dtype=np.float32),
            text=text,
            finished=row.completion_ids[-1] in self.eos_token_ids,
        )

    @contextmanager
    def _replaying(self, rows: Sequence[_Row], rewards: Tensor) -> Iterator[list[dict[str, Any]]]:
        """Let TRL see groups of m, the kept rollouts; yield the inputs of this process's share."""
        size = len(rows) // self.accelerator.num_processes
        start = size * self.accelerator.process_index
        local = rows[start : start + size]

        n = self.num_generations
        self.num_generations = self.keep
        self._kept = _Kept(local, rewards)
        for name in list(self._pending_extra_logs):
            self._pending_extra_logs[name] = [row.logged.get(name) for row in local]
        for column in self._logs.values():
            column.clear()  # its length is that of n rollouts, so that old rows would stay
        try:
            yield [{"prompt": row.prompt} for row in local]
        finally:
            self.num_generations = n
            self._kept = None

    def _log(self, rewards: Tensor, groups: NDArray[np.float64]) -> None:
        """Log TRL's reward metrics of all n rollouts under their names, of the kept as `kept/…`."""
        mean, std = _mean_and_std(groups.ravel())
        flat = [len(np.unique(group[~np.isnan(group)])) <= 1 for group in groups]
        values = {"reward": mean, "reward_std": std, "frac_reward_zero_std": float(np.mean(flat))}

        columns = rewards.double().cpu().numpy().T
        for name, column in zip(self.reward_func_names, columns, strict=True):
            mean, std = _mean_and_std(column)
            values[f"rewards/{name}/mean"] = mean
            values[f"rewards/{name}/std"] = std

        metrics = self._metrics["train"]
        for name, value in values.items():
            metrics[f"kept/{name}"].append(metrics[name].pop())
            metrics[name].append(value)


def _add_fields(
    inputs: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the inputs with what an environment gave: a list has a value for each of them."""
    rows = []
    for i, fields in enumerate(inputs):
        row = dict(fields)
        for name, value in extra.items():
            row[name] = value[i] if isinstance(value, list) else value
        rows.append(row)
    return rows


def _mean_and_std(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    mean = known.mean() if len(known) else np.nan
    std = known.std(ddof=1) if len(known) > 1 else np.nan
    return float(mean), float(std)


def _checked_rule(rule: str | Rule, n: int, m: int) -> Rule:
    """Return the rule's function. `ValueError`: there is none, or it cannot keep m of n."""
    if not 1 < m <= n:
        raise ValueError(f"keep={m}: must be from 2 to num_generations={n}")

    try:
        chosen = find_rule(rule) if isinstance(rule, str) else rule
        if is_across_groups(chosen):
            raise ValueError("must choose within one group, since TRL's groups have equal sizes")
        function = cast(Rule, chosen)
        if function in RULES.values():  # such as `all`, which keeps no fewer than n
            ones = np.ones(n)
            function(Group(ones, ones > 0, np.ones(n, np.int64)), m, np.random.default_rng(0))
    except ValueError as error:
        raise ValueError(f"rule={rule}: {error}") from None
    return function


def _check_options(args: GRPOConfig, dataset: Any, m: int, options: Mapping[str, Any]) -> None:
    """Refuse, as a `ValueError`, what TRL could do with n rollouts, but not with m of them."""
    share = args.per_device_train_batch_size * m / args.num_generations
    if share % 1:
        raise ValueError(
            f"keep={m}: must make per_device_train_batch_size * keep / num_generations = {share:g} "
            "whole: the rollouts of a micro-batch"
        )

    first = None if dataset is None else next(iter(dataset), None)
    if first is None:
        raise ValueError("train_dataset: must have a row")
    images = {"image", "images"} & first.keys()
    if images:
        raise ValueError(f"train_dataset={sorted(images)}: must have no images")
    for name in ("tools", "environment_factory"):
        if options.get(name):
            raise ValueError(f"{name}={options[name]}: must be left out with PODSTrainer")
