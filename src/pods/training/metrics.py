"""The record of a step: its line in metrics.jsonl, and the rows of its rollouts."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from pods.training.step import SelectedGroup, Step, amounts
from pods.types import Grade, Parts


def metrics(step: Step) -> dict[str, Any]:
    """Return the step's line: means over all rollouts, `kept_*` over those that were kept.

    `seconds*`, `cpu_seconds/*` and `train_seconds` are measured, or `seconds/modelled` replaces
    the phases; everything else is a function of the config.
    """
    made = amounts(step.groups)
    line: dict[str, Any] = {
        "step": step.number,
        "nonfinite": step.nonfinite,
        "train_seconds": step.train_seconds,
        **{f"seconds/{phase}": seconds for phase, seconds in step.seconds.wall.items()},
        **{f"cpu_seconds/{phase}": seconds for phase, seconds in step.seconds.cpu.items()},
        "prompts": [group.problem.id for group in step.groups],
        **_prompt_metrics(step, made),
        **_rollout_metrics(step.groups, made),
        **_kept_metrics(step.groups, made),
        **(asdict(step.update) if step.update is not None else {}),
        **({"engine_gap": step.sample.gap} if step.sample.gap is not None else {}),
        "kept_projection": step.kept_projection,
        "rollouts_per_group": [len(group.grades) for group in step.groups],
        "kept": [group.kept.tolist() for group in step.groups],
    }
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in line.items()}
    return {k: v if _finite(v) else None for k, v in plain.items()}


def _prompt_metrics(step: Step, made: Mapping[str, int]) -> dict[str, Any]:
    """Summarise what prompt selection and the group filter did, and the selector's parameters."""
    groups = [group.group for group in step.groups]
    sample, prompts = step.sample, len(step.sample.prompts)
    saved_prompts = sum(chosen.saved_prompts for chosen in sample.chosen)
    selector = step.state.selector
    # without `asdict`'s copies, since GRESO and MoPPS store every problem
    state = {field.name: getattr(selector, field.name) for field in fields(selector)}
    return {
        "epoch": step.epoch,
        "sampling_batches": len(sample.chosen),
        "sampled_prompts": prompts,
        "passed_over_prompts": sum(chosen.passed_over for chosen in sample.chosen),
        "rollouts_saved": saved_prompts * made["generated_rollouts"] // prompts,
        "generated_rollouts": made["generated_rollouts"],
        "trained_rollouts": made["trained_rollouts"],
        "zero_variance_fraction": np.mean([np.ptp(group.rewards) == 0 for group in groups]),
        "all_right_fraction": np.mean([group.rewarded.all() for group in groups]),
        "none_right_fraction": np.mean([not group.rewarded.any() for group in groups]),
        **{f"selector/{name}": x for name, x in state.items() if isinstance(x, float)},
    }


def _rollout_metrics(groups: Sequence[SelectedGroup], made: Mapping[str, int]) -> dict[str, Any]:
    """Average over all rollouts; `reward/*` are the terms of a user's own."""
    rewards = [group.group.rewards for group in groups]  # (n,) each
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    grades = [grade for group in groups for grade in group.grades]
    verdicts = Counter(grade.verdict for grade in grades)
    return {
        "reward": np.concatenate(rewards).mean(),
        "reward_std": np.mean([of_group.std() for of_group in rewards]),
        "correct": np.mean([grade.correct for grade in grades]),
        "format": sum(grade.format for grade in grades) / len(grades),
        "format_reward": sum(grade.parts.format for grade in grades) / len(grades),
        "tags_reward": sum(grade.parts.tags for grade in grades) / len(grades),
        **{
            f"reward/{name}": sum(own_terms(grade)[name] for grade in grades) / len(grades)
            for name in own_terms(grades[0])
        },
        "no_answer": verdicts["none"] / len(grades),
        "timeouts": verdicts["timeout"],
        "length": np.concatenate([group.group.lengths for group in groups]).mean(),
        "truncated": sum(not rollout.finished for rollout in rollouts) / len(rollouts),
        "generated_tokens": made["generated_tokens"],
    }


def own_terms(grade: Grade) -> dict[str, float]:
    """Return the terms of a reward that no part of it shows; see `pods.types.Parts`."""
    return {name: value for name, value in (grade.terms or {}).items() if name not in Parts._fields}


def _kept_metrics(all_groups: Sequence[SelectedGroup], made: Mapping[str, int]) -> dict[str, Any]:
    """Summarise what the rule kept; a step that ended before selection has none of these.

    `kept_*` are over all groups of which something was kept, `kept_reward_variance` and `trained_*`
    over those trained on. The other groups are `skipped_groups`: filtered, informative beyond a
    full batch, or left out by a rule across groups.
    """
    if not (groups := [group for group in all_groups if len(group.kept)]):
        return {}
    kept_rewards = [group.group.rewards[group.kept] for group in groups]  # (m,) each
    kept_lengths = [group.group.lengths[group.kept] for group in groups]
    variances = [group.group.rewards[group.kept].var() for group in groups if group.trained]
    return {
        "kept_reward": np.concatenate(kept_rewards).mean(),
        "kept_reward_std": np.mean([rewards.std() for rewards in kept_rewards]),
        "kept_reward_variance": np.mean(variances) if variances else None,
        "zero_variance_kept": sum(int(kept.min() == kept.max()) for kept in kept_rewards),
        "skipped_groups": len(all_groups) - len(variances),
        "kept_length": np.concatenate(kept_lengths).mean(),
        "trained_tokens": made["trained_tokens"],
    }


def rollout_rows(step: Step, replayable: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a row per rollout: problem, completion, grade, and the advantage if it was kept.

    A replayable row also has token ids and log-probs: all that an update of the step needs.
    """
    for group_index, group in enumerate(step.groups):
        kept_advantages = map(_json_number, group.advantages.tolist())
        advantages = dict(zip(group.kept.tolist(), kept_advantages, strict=True))
        for i, (rollout, grade) in enumerate(zip(group.group.rollouts, group.grades, strict=True)):
            parts = {**grade.parts._asdict(), **own_terms(grade)}
            row: dict[str, Any] = {
                "problem": group.problem.id,
                "group": group_index,
                "question": group.problem.question,
                "completion": rollout.text,
                "reward": _json_number(grade.reward),
                "verdict": grade.verdict,
                "correct": grade.correct,
                "format": grade.format,
                **{f"reward/{name}": _json_number(part) for name, part in parts.items()},
                "length": len(rollout.completion_ids),
                "finished": rollout.finished,
                "kept": i in advantages,
                "trained": i in advantages and group.trained,
                "advantage": advantages.get(i),
            }
            if replayable:
                row["prompt_ids"] = rollout.prompt_ids
                row["completion_ids"] = rollout.completion_ids
                row["logprobs"] = [_json_number(x) for x in rollout.logprobs.tolist()]
            yield row


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _json_number(value: float) -> float | str:
    """Replace NaN and infinity, which JSON lacks, by their names."""
    return value if _finite(value) else repr(value)
