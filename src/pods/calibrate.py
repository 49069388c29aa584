"""`pods calibrate`: which engine, synced how and how precise, does this machine favour?

Each mode is measured in a process of its own, since vLLM does not give its memory back:

    python -m pods.calibrate ROW.json < CONFIG.json
"""

import json
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from signal import Signals
from typing import Any

from pods.checks import build
from pods.config import Config
from pods.machine import end_with_parent, set_threads
from pods.runs.environment import environment
from pods.runs.files import replace
from pods.runs.status import table

WIDTH = 100  # columns of the screen
Row = dict[str, Any]
COLUMNS = ("mode", "sync s", "tokens/s", "mean gap", "max gap", "kept", "")
MEASURED = ("engine=", "engine.name=", "engine.sync=")
KEYS = (
    "task.name", "model.name", "model.dtype", "model.tuning", "model.lora.r", "nm.n", "nm.m",
    "prompts_per_step", "sampling.temperature", "sampling.max_prompt_tokens",
    "sampling.max_completion_tokens", "update.lr", "engine.max_rows", "engine.kv_gb",
    "engine.gpu_memory_utilization", "engine.min_kept", "engine.gap_bound", "hardware.name",
    "hardware.device", "hardware.threads",
)  # fmt: skip


def calibrate(words: Sequence[str], out: Path, seconds: float) -> bool:
    """Measure each mode, print the table and write it to OUT/<model>-<hardware>.json and .md.

    Args:
        words: overrides as `run.py` takes them, without an engine.
        out: folder.
        seconds: after which a mode is given up.

    Returns:
        Whether some mode could be measured.

    Raises:
        ValueError: the words make no config, vLLM is not here, or there can be no such folder.
    """
    from pods.compose import compose

    for word in words:
        if word.startswith(MEASURED):
            raise ValueError(f"{word}: leave it out; calibrate measures each of them")
    config = build(compose([*words, "engine=vllm", "engine.sync=merged"]))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: {error.strerror}") from error
    rows = []
    for engine in modes(config):
        start = time.monotonic()
        print(f"measuring {_name(engine)} ...", end="", flush=True)
        rows.append({**engine, **_measured(config, engine, seconds)})
        print(f" {time.monotonic() - start:.0f} s", flush=True)
    found = report(config, rows, ["pods", "calibrate", *words])
    path = out / f"{config.model.name}-{config.hardware.name}"
    replace(path.with_name(f"{path.name}.json"), json.dumps(found, indent=1) + "\n")
    replace(path.with_name(f"{path.name}.md"), _markdown(found))
    favoured = textwrap.fill(found["favours"], WIDTH, break_on_hyphens=False)
    print(f"\n{table(COLUMNS, _cells(rows))}\n\n{favoured}\nreport: {path}.md (JSON beside it)")
    return not all("error" in row for row in rows)


def modes(config: Config) -> list[Row]:
    """What to measure: engine, sync and dtype of each."""
    own, tuning = config.engine.dtype, config.model.tuning
    ways = [("merged", dtype) for dtype in dict.fromkeys([own, "bfloat16", "float32"])]
    ways += [("adapter", own)] if tuning == "lora" else []
    found = [{"name": "vllm", "sync": sync, "dtype": dtype} for sync, dtype in ways]
    return [*found, {"name": "transformers", "sync": None, "dtype": config.model.dtype}]


def _measured(config: Config, engine: Mapping[str, Any], seconds: float) -> Row:
    """Measure a mode in a process of its own; what went wrong there is `error`, in one line."""
    values = asdict(config)
    values["engine"] |= {name: value for name, value in engine.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="pods-calibrate-") as scratch:
        asked, row, console = (Path(scratch) / name for name in ("config", "row", "console"))
        asked.write_text(json.dumps(values))
        with asked.open() as given, console.open("w") as output:
            command = [sys.executable, "-m", "pods.calibrate", str(row)]
            try:
                code = subprocess.run(
                    command, stdin=given, stdout=output, stderr=output, timeout=seconds, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return {"error": f"over {seconds:g} s"}
        if row.exists():
            return dict(json.loads(row.read_text()))
        died = f"killed by {Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = console.read_text(errors="replace").strip().splitlines()[-1:]
        return {"error": ": ".join([died, *last])}


def report(config: Config, rows: Sequence[Row], command: Sequence[str]) -> dict[str, Any]:
    """Everything that was found, and where and how."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "machine": environment(),
        "config": {key: attrgetter(key)(config) for key in KEYS},
        "rows": list(rows),
        "favours": favours(config, rows),
    }


def favours(config: Config, rows: Sequence[Row]) -> str:
    """Say which mode is fastest among those that train what they should."""
    fit = [row for row in rows if row.get("fit")]
    rule = (f"whose mean gap is within engine.gap_bound and that keeps, where it merges, at least "
            f"{config.engine.min_kept:g} of the policy's change (engine.min_kept)")  # fmt: skip
    if not fit:
        return f"This machine favours no mode: there is none {rule}."
    best = max(fit, key=lambda row: float(row["tokens_per_second"]))
    return (f"This machine favours {_words(best)}: {best['tokens_per_second']:,.0f} tokens/s, more "
            f"than any other mode {rule}.")  # fmt: skip


def _words(row: Row) -> str:
    """A mode as one types it."""
    if row["name"] != "vllm":
        return f"engine={row['name']}"
    return f"engine=vllm engine.sync={row['sync']} engine.dtype={row['dtype']}"


def _name(row: Row) -> str:
    return " ".join(part for part in (row["name"], row["sync"], row["dtype"]) if part)


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells, a list a row."""
    formats = {"sync_seconds": ".3f", "tokens_per_second": ",.0f", "gap_mean": ".1e",
               "gap_max": ".1e", "kept": ".4f"}  # fmt: skip
    return [
        [
            _name(row),
            *("-" if row.get(k) is None else format(row[k], f) for k, f in formats.items()),
            row.get("error", ""),
        ]
        for row in rows
    ]


def _markdown(found: Mapping[str, Any]) -> str:
    """The report as a page."""
    here, config = found["machine"], found["config"]
    versions = ", ".join(f"{name} {v}" for name, v in here["packages"].items() if v)
    lines = [[*COLUMNS[:-1], "error"], ["---"] * len(COLUMNS), *_cells(found["rows"])]
    return "\n".join([
        f"# {config['model.name']} on {config['hardware.name']}", "",
        f"`{found['command']}`, {found['date']}", "",
        f"{here['cpu']}, {here['cores']} cores; GPUs: {', '.join(here['gpus']) or 'none'}; "
        f"{versions}", "",
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines),
        "", found["favours"], "", ", ".join(f"`{k}={v}`" for k, v in config.items()), "",
    ])  # fmt: skip


def main(row: Path) -> None:
    """Measure the config on standard input and write what was found, or what went wrong."""
    end_with_parent()
    try:
        config = build(json.load(sys.stdin))
        set_threads(config.hardware.threads)
        from pods.trial import measure

        found = measure(config)
    except Exception as error:  # a mode that fails is a row like any other
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        found = {"error": " ".join(f"{kind}{error}".split())}
    replace(row, json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
