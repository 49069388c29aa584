"""Verdicts on mathematical answers: exact rules decide first, worker processes prove the rest.

The verdict on an answer and its gold never depends on what was graded before.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from importlib.util import find_spec

from mathgrade.worker_pool import WorkerPool, WorkerUnavailable

CACHE_SIZE = 65_536  # verdicts
POLL_SECONDS = 0.5


class MathGrader:
    """Grades closed answers in LaTeX or plain text; threads may share one grader."""

    def __init__(
        self,
        workers: int = 1,
        check: Callable[[], None] = lambda: None,
        cache_size: int = CACHE_SIZE,
        decide: Callable[[str, str], str | list[object]] | None = None,
    ) -> None:
        """Create the grader; processes start and sympy is loaded when an answer first needs them.

        Args:
            workers: number of processes that compare expressions.
            check: called repeatedly while `verdict` waits for a process; it may raise to stop
                waiting.
            cache_size: number of verdicts to keep; the least recently used are dropped.
            decide: returns a verdict or the goal that is left for a process; None: the exact rules.

        Raises:
            ValueError: math-verify is not installed.
        """
        if find_spec("math_verify") is None:
            raise ValueError("math-verify is not installed: pip install 'pods-rl[math]'")
        self.pool = WorkerPool(workers)
        self.check = check
        self.cache_size = cache_size
        self.decide = decide
        self.cache: OrderedDict[tuple[str, str], str | Future[str]] = OrderedDict()
        self.lock = threading.Lock()

    def prefetch(self, answer: str, gold: str) -> None:
        """Start grading an answer in the background, so that `verdict` need not wait as long."""
        self._lookup(answer, gold)

    def verdict(self, answer: str, gold: str) -> str:
        """Grade one closed answer: the content of the tag or box, never a whole completion.

        Returns:
            `right`, `wrong`, `refused` (too long, too deep or of a kind that is not graded) or
            `timeout` (the limit of work, time or memory was reached).

        Raises:
            WorkerUnavailable: worker processes do not start, or keep crashing.
        """
        while not isinstance(result := self._lookup(answer, gold), str):
            self.check()
            try:
                self._store(answer, gold, result.result(timeout=POLL_SECONDS))
            except TimeoutError:
                continue
            except CancelledError:  # the pool was closed meanwhile
                self._store(answer, gold, None)
            except WorkerUnavailable:
                self._store(answer, gold, None)
                raise
        return result

    def close(self) -> None:
        """End the worker processes; a later answer that needs them starts new ones."""
        self.pool.close()

    def _store(self, answer: str, gold: str, verdict: str | None) -> None:
        """Replace a pending result by its verdict; None forgets it, so that it is graded anew."""
        with self.lock:
            self.cache.pop((answer, gold), None)
            if verdict is not None:
                self.cache[answer, gold] = verdict

    def _lookup(self, answer: str, gold: str) -> str | Future[str]:
        """Return the verdict, or the future of one that a worker has yet to find."""
        from mathgrade.latex.exact import verdict_or_goal  # its tables take 30 ms to import

        key = (answer, gold)
        with self.lock:
            if key in self.cache:
                self.cache.move_to_end(key)
                return self.cache[key]
            decided = (self.decide or verdict_or_goal)(answer, gold)
            if decided == "refused":
                return "refused"  # not cached: the text may be large
            result = decided if isinstance(decided, str) else self.pool.submit(decided)
            self.cache[key] = result
            if len(self.cache) > self.cache_size:
                self.cache.popitem(last=False)
        return result
