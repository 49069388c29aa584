"""The record of a step: its line in metrics.jsonl, and the rows of its rollouts."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from pods.method.rules import all_equal
from pods.training.step import SelectedGroup, Step, amounts
from pods.types import Grade, Parts


def metrics(step: Step) -> dict[str, Any]:
    """Return the step's line: means over all rollouts, `kept_*` over those that were kept.

    `seconds*`, `cpu_seconds/*` and `train_seconds` are measured; everything else is a function of
    the config.
    """
    counts = amounts(step.groups)
    line: dict[str, Any] = {
        "step": step.number,
        "nonfinite": step.nonfinite,
        "train_seconds": step.train_seconds,
    }
    for phase, seconds in step.seconds.wall.items():
        line[f"seconds/{phase}"] = seconds
    for phase, seconds in step.seconds.cpu.items():
        line[f"cpu_seconds/{phase}"] = seconds
    line["prompts"] = [group.problem.id for group in step.groups]

    line |= _prompt_metrics(step, counts)
    line |= _rollout_metrics(step.groups, counts)
    line |= _kept_metrics(step.groups, counts)
    if step.update is not None:
        line |= asdict(step.update)
    if step.sample.gap is not None:
        line["engine_gap"] = step.sample.gap
    line["kept_projection"] = step.kept_projection
    line["rollouts_per_group"] = [group.generated for group in step.groups]
    line["kept"] = [_kept_positions(group) for group in step.groups]

    return {name: _plain(value) for name, value in line.items()}


def _kept_positions(group: SelectedGroup) -> list[int]:
    """Return which of the generated rollouts were kept."""
    positions = group.positions()
    return [positions[index] for index in group.kept]


def _plain(value: object) -> object:
    """Return a value as JSON has it: no numpy scalar, and null for NaN and infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if _is_finite(value) else None


def _prompt_metrics(step: Step, counts: Mapping[str, int]) -> dict[str, Any]:
    """Summarise what prompt selection and the group filter did, and the selector's parameters."""
    groups = [group.group for group in step.groups if group.grades]
    sample = step.sample
    prompts = len(sample.prompts)
    saved_prompts = sum(chosen.saved_prompts for chosen in sample.chosen)
    line: dict[str, Any] = {
        "epoch": step.epoch,
        "sampling_batches": len(sample.chosen),
        "sampled_prompts": prompts,
        "passed_over_prompts": sum(chosen.passed_over for chosen in sample.chosen),
        "rollouts_saved": saved_prompts * counts["generated_rollouts"] // prompts,
        "generated_rollouts": counts["generated_rollouts"],
        "trained_rollouts": counts["trained_rollouts"],
        "no_reward": sum(len(group.left_out) for group in step.groups),
        "zero_variance_fraction": _mean([all_equal(group.rewards) for group in groups]),
        "all_right_fraction": _mean([group.rewarded.all() for group in groups]),
        "none_right_fraction": _mean([not group.rewarded.any() for group in groups]),
    }
    selector = step.state.selector
    for field in fields(selector):  # without `asdict`, which would copy what is known of problems
        value = getattr(selector, field.name)
        if isinstance(value, float):
            line[f"selector/{field.name}"] = value

    return line


def _rollout_metrics(groups: Sequence[SelectedGroup], counts: Mapping[str, int]) -> dict[str, Any]:
    """Average over all rollouts; rewards over those that have one.

    `reward/*` are the terms of a user's own reward.
    """
    rewards = [group.group.rewards for group in groups if group.grades]  # (n,) each
    rollouts = [rollout for group in groups for rollout in group.group.rollouts]
    rollouts += [left.rollout for group in groups for left in group.left_out]
    grades = [grade for group in groups for grade in group.grades]
    grades += [left.grade for group in groups for left in group.left_out]
    verdicts = Counter(grade.verdict for grade in grades)
    finished = Counter(rollout.finished for rollout in rollouts)

    line: dict[str, Any] = {
        "reward": _mean([reward for group_rewards in rewards for reward in group_rewards]),
        "reward_std": _mean([group_rewards.std() for group_rewards in rewards]),
        "correct": _mean([grade.correct for grade in grades]),
    }
    line |= _grade_metrics(grades)
    line["no_answer"] = verdicts["none"] / len(grades)
    line["timeouts"] = verdicts["timeout"]
    line["length"] = _mean([len(rollout.completion_ids) for rollout in rollouts])
    line["truncated"] = finished[False] / len(rollouts)
    line["generated_tokens"] = counts["generated_tokens"]

    return line


def _grade_metrics(grades: Sequence[Grade]) -> dict[str, float]:
    """Average the form and the parts of the reward that are not the answer's."""
    totals = dict.fromkeys(("format", "format_reward", "tags_reward"), 0.0)
    terms: dict[str, list[float]] = {}
    for grade in grades:
        totals["format"] += grade.format
        totals["format_reward"] += grade.parts.format
        totals["tags_reward"] += grade.parts.tags
        for name, value in own_terms(grade).items() if grade.scored else ():
            terms.setdefault(f"reward/{name}", []).append(value)

    means = {name: total / len(grades) for name, total in totals.items()}
    for name, values in terms.items():  # of the completions that have the term
        means[name] = sum(values) / len(values)
    return means


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean, or None of nothing."""
    return np.mean(values) if len(values) > 0 else None


def own_terms(grade: Grade) -> dict[str, float]:
    """Return the terms of a reward that no part of it shows; see `pods.types.Parts`."""
    terms = grade.terms or {}
    return {name: value for name, value in terms.items() if name not in Parts._fields}


def _kept_metrics(all_groups: Sequence[SelectedGroup], counts: Mapping[str, int]) -> dict[str, Any]:
    """Summarise what the rule kept; a step that ended before selection has none of these.

    `kept_*` are over all groups of which something was kept, `kept_reward_variance` and `trained_*`
    over those trained on. The other groups are `skipped_groups`: filtered, informative beyond a
    full batch, or left out by a rule across groups.
    """
    groups = [group for group in all_groups if len(group.kept) > 0]
    if not groups:
        return {}
    kept_rewards = [group.group.rewards[group.kept] for group in groups]  # (m,) each
    kept_lengths = [group.group.lengths[group.kept] for group in groups]
    variances = [group.group.rewards[group.kept].var() for group in groups if group.trained]
    return {
        "kept_reward": np.concatenate(kept_rewards).mean(),
        "kept_reward_std": np.mean([rewards.std() for rewards in kept_rewards]),
        "kept_reward_variance": np.mean(variances) if variances else None,
        "zero_variance_kept": sum(map(all_equal, kept_rewards)),
        "skipped_groups": len(all_groups) - len(variances),
        "kept_length": np.concatenate(kept_lengths).mean(),
        "trained_tokens": counts["trained_tokens"],
    }


def rollout_rows(step: Step, replayable: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a row per rollout: problem, completion, grade, and the advantage if it was kept.

    The reward of one that has none is null.

    A replayable row also has token ids and log-probs: all that an update of the step needs.
    """
    for group_index, group in enumerate(step.groups):
        advantages = {
            position: _json_number(float(advantage))
            for position, advantage in zip(_kept_positions(group), group.advantages, strict=True)
        }
        scored = zip(group.positions(), group.group.rollouts, group.grades, strict=True)
        left_out = [(left.position, left.rollout, left.grade) for left in group.left_out]
        for i, rollout, grade in sorted([*scored, *left_out], key=lambda row: row[0]):
            row: dict[str, Any] = {
                "problem": group.problem.id,
                "group": group_index,
                "question": group.problem.question,
                "completion": rollout.text,
                "reward": _json_number(grade.reward) if grade.scored else None,
                "verdict": grade.verdict,
                "correct": grade.correct,
                "format": grade.format,
            }
            for name, part in (grade.parts._asdict() | own_terms(grade)).items():
                row[f"reward/{name}"] = _json_number(part)
            row["length"] = len(rollout.completion_ids)
            row["finished"] = rollout.finished
            row["kept"] = i in advantages
            row["trained"] = i in advantages and group.trained
            row["advantage"] = advantages.get(i)
            if replayable:
                row["prompt_ids"] = rollout.prompt_ids
                row["completion_ids"] = rollout.completion_ids
                row["logprobs"] = [_json_number(x) for x in rollout.logprobs.tolist()]
            yield row


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _json_number(value: float) -> float | str:
    """Replace NaN and infinity, which JSON lacks, by their names."""
    return value if _is_finite(value) else repr(value)
