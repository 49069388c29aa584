"""Turn gpu.py's results into the Markdown tables of README.md."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpu_figure import PHASES, result_of


def report(facts: dict[str, Any]) -> str:
    """Return a table per part that has measured something, and the state of each part."""
    machine = facts["machine"]
    card = ", ".join(machine["gpus"]) or machine["cpu"]
    lines = [f"{card}; shape {facts['shape']}; commit {(machine['commit'] or 'unknown')[:7]}.", ""]
    lines += table(["part", "state", "seconds"], parts(facts))
    for make in (rates, updates, steps, engines, arms):
        rows = list(make(facts))
        if len(rows) > 1:
            lines += ["", *table(rows[0], rows[1:])]
    return "\n".join(lines) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def parts(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield a row per part; a failed one has the last line of its error."""
    for name, part in facts["parts"].items():
        why = (part.get("error") or "").strip().splitlines()[-1:]
        yield [f"`{name}`", ": ".join([part["status"], *why]), f"{part.get('seconds', 0):g}"]


def rates(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield what the device reaches, and the kernel that it chose."""
    yield ["rate", "measured", "kernel"]
    probe = result_of(facts, "probe")
    chosen = {name: rows[0]["name"] for name, rows in probe.get("kernels", {}).items() if rows}
    for name, rate in probe.get("gemm_tflops", {}).items():
        yield [f"product, {name}", f"{rate:.3g} TFLOP/s", _code(chosen.get(f"gemm {name}"))]
    for name, seconds in probe.get("attention_seconds", {}).items():
        yield [name, f"{1000 * seconds:.3g} ms", _code(chosen.get(name))]
    for key in ("output_layer_seconds", "gather_backward_seconds"):
        for name, seconds in probe.get(key, {}).items():
            what = key.removesuffix("_seconds").replace("_", " ")
            yield [f"{what}, {name}", f"{1000 * seconds:.3g} ms", ""]


def _code(name: str | None) -> str:
    return "" if name is None else f"`{name[:60]}`"


def updates(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the updates beside their floor, and peak memory beside the plan."""
    yield ["update", "seconds", "floor", "times the floor", "peak GiB", "planned GiB"]
    for case, row in result_of(facts, "step").get("update", {}).items():
        sizes = [f"{row['memory'][key] / 2**30:.2f}" for key in ("bytes", "planned_bytes")]
        seconds = [f"{row[key]:.3g}" for key in ("seconds", "floor_seconds", "times_the_floor")]
        yield [case, *seconds, *sizes]


def steps(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the steps by phase; the floors are those of generating and updating."""
    yield ["step", "tokens", "seconds", *PHASES, "floors"]
    for part in ("step", "vllm"):
        for size, row in result_of(facts, part).get("steps", {}).items():
            lengths = ", ".join(map(str, row["completion_tokens"]))
            floors = " + ".join(f"{seconds:.3g}" for seconds in row["floors"].values())
            numbers = [f"{row[key]:.3g}" for key in ("seconds", *PHASES)]
            yield [f"{'vLLM' if part == 'vllm' else 'transformers'}, {size}", lengths, *numbers,
                   floors]  # fmt: skip


def engines(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the numbers of vLLM's checks."""
    yield ["vLLM", "measured"]
    vllm = result_of(facts, "vllm")
    if "start_seconds" in vllm:
        yield ["start", f"{vllm['start_seconds']:.3g} s"]
    for name, numbers in vllm.get("checks", {}).items():
        shown = ", ".join(f"{key} {value:.3g}" for key, value in numbers.items() if key != "error")
        yield [name.replace("_", " "), "**failed**" if "error" in numbers else shown]
    for name, rate in vllm.get("tokens_per_second", {}).items():
        yield [f"tokens per second, {name}", f"{rate:.4g}"]


def arms(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the arms at equal training time."""
    yield ["arm", "n to m", "steps", "train seconds", "accuracy before", "after (±1 stderr)"]
    for name, arm in result_of(facts, "arms").get("arms", {}).items():
        if "after" in arm:
            before, after = arm["before"], arm["after"]
            yield [name, f"{arm['n']} to {arm['m']}", str(len(arm["steps"])),
                   f"{after['train_seconds']:.3g}", f"{before['accuracy']:.3f}",
                   f"{after['accuracy']:.3f} ± {after['stderr']:.3f}"]  # fmt: skip
