"""The completions of an evaluation's first pass, kept to be read: `evaluation.save_completions`.

They lie beside the records, as step-000100.jsonl.gz, and do not change them.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pods.runs.checkpoint import READ_ERRORS
from pods.runs.evaluations import EvaluationRecord
from pods.runs.files import replace
from pods.runs.store import gzip_lines
from pods.types import Problem

SUFFIX = ".jsonl.gz"


class Completions:
    """The file of one evaluation; a resumed one continues behind the records that are there."""

    def __init__(self, records: Path, problems: Sequence[Problem], done: int) -> None:
        """Keep what an earlier process wrote of the first `done` records."""
        self.path = records.with_suffix(SUFFIX)
        self.problems = {problem.id: problem for problem in problems}
        answered = {problem.id for problem in problems[:done]}
        self.rows = [row for row in _read(self.path) if row.get("question") in answered]
        self.texts: list[str] = []

    def write(self, records: Sequence[EvaluationRecord]) -> None:
        """Add the completions of a chunk, before its records are written; `texts` has them."""
        self.rows += [
            {
                "question": record.question,
                "asked": self.problems[record.question].question,
                "gold": self.problems[record.question].gold,
                "completion": text,
                "correct": record.correct,
                "verdict": record.verdict,
                "length": record.length,
            }
            for record, text in zip(records, self.texts, strict=True)
            if record.repeat == 0
        ]
        self.texts.clear()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace(self.path, gzip_lines(self.rows))


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none if it is not there or damaged."""
    try:
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (*READ_ERRORS, EOFError):
        return []
