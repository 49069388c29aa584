"""Exact, sandboxed grading of mathematical answers: numbers in any surface form, and LaTeX.

`number` reads an answer that is one number as a fraction. `MathGrader` compares LaTeX answers:
`latex/` decides by exact rules in this process, and what it leaves is proved in worker processes
(`worker_pool.py`, `symbolic_worker.py`) that are killed past their limits. This package imports
nothing of `pods`; only the verdict of `open_r1.py` finds the answer in a completion. Start reading
in `grader.py`.
"""

from mathgrade.grader import MathGrader
from mathgrade.numbers import number
from mathgrade.worker_pool import WorkerUnavailable

__all__ = ["MathGrader", "WorkerUnavailable", "number"]
