"""Verdicts on mathematical answers: exact where that decides, else by a pool of workers.

The same answer and gold always have the same verdict, whatever was asked before.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from importlib.util import find_spec

from pods.tasks.latex.exact import settle
from pods.tasks.latex.normal import MAX_CHARACTERS
from pods.tasks.pool import NoRoom, Pool

REMEMBERED = 65_536  # verdicts
POLL_SECONDS = 0.5


class MathVerdicts:
    """Verdicts on closed answers in LaTeX or plain text, remembered per (answer, gold)."""

    def __init__(
        self,
        workers: int,
        check: Callable[[], None] = lambda: None,
        remembered: int = REMEMBERED,
    ) -> None:
        """Make the grader; no process is started and no library loaded before one is needed.

        Args:
            workers: processes that compare expressions.
            check: called while `verdict` waits for one; may raise.
            remembered: verdicts that are kept; the oldest go first.

        Raises:
            ValueError: math-verify is not installed.
        """
        if find_spec("math_verify") is None:
            raise ValueError("math-verify is not installed: pip install 'pods-rl[math]'")
        self.pool = Pool(workers)
        self.check = check
        self.remembered = remembered
        self.known: OrderedDict[tuple[str, str], str | Future[str]] = OrderedDict()
        self.lock = threading.Lock()

    def ahead(self, answer: str, gold: str) -> None:
        """Begin, in the background, what `verdict` will be asked for."""
        self._look(answer, gold)

    def verdict(self, answer: str, gold: str) -> str:
        """Grade one closed answer: what stands in the tag or box, never a whole completion.

        Returns:
            `right`, `wrong`, `refused` (too long, deep or of a kind that is not graded) or
            `timeout` (over its limit of work, time or memory).

        Raises:
            NoRoom: the workers cannot be started, or die.
        """
        while not isinstance(found := self._look(answer, gold), str):
            self.check()
            try:
                self._remember(answer, gold, found.result(timeout=POLL_SECONDS))
            except TimeoutError:
                continue
            except CancelledError:  # the pool was closed meanwhile
                self._remember(answer, gold, None)
            except NoRoom:
                self._remember(answer, gold, None)
                raise
        return found

    def close(self) -> None:
        """End the workers; the grader may go on to be used."""
        self.pool.close()

    def _remember(self, answer: str, gold: str, verdict: str | None) -> None:
        """Keep a verdict in place of what it was waited for by; None: ask anew next time."""
        with self.lock:
            self.known.pop((answer, gold), None)
            if verdict is not None:
                self.known[answer, gold] = verdict

    def _look(self, answer: str, gold: str) -> str | Future[str]:
        if max(len(answer), len(gold)) > MAX_CHARACTERS:
            return "refused"  # and not remembered: it may be large
        key = (answer, gold)
        with self.lock:
            found = self.known.get(key)
            if found is None:
                settled = settle(answer, gold)
                found = settled if isinstance(settled, str) else self.pool.submit(settled)
                self.known[key] = found
                if len(self.known) > self.remembered:
                    self.known.popitem(last=False)
            else:
                self.known.move_to_end(key)
        return found
