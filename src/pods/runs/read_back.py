"""What a run that is done must hold: read back before its status says so."""

from dataclasses import asdict

from pods.config import Config
from pods.runs import checkpoint
from pods.runs.files import Altered, content_of, read_lines
from pods.runs.history import mismatch
from pods.runs.identity import difference, settled
from pods.runs.points import answered, expected_points
from pods.runs.store import RunStore

REREAD_BYTES = 2**26
"""Of a larger file of weights the size is enough at the end: it was read when it was committed."""


def is_evaluated(store: RunStore, config: Config, step: int, questions: int) -> bool:
    """Say whether there is a whole evaluation of a step, of so many questions."""
    names = answered(config, step, content_of(store.evaluation_path(step)))
    return names is not None and len(names) == questions


def hold_to_the_end(store: RunStore, config: Config, last: int, questions: int) -> None:
    """See that a run which has come to its end has left all that it must.

    Args:
        store: of the run.
        config: of the run.
        last: step that it ended with.
        questions: of each evaluation.

    Raises:
        Altered: it has not. Of a checkpoint that is gone there is no second one, but for the last.
    """
    try:
        edited = difference(settled(asdict(config)), settled(asdict(store.config())))
        if edited:
            raise Altered(f"{store.config_path} was edited: {'; '.join(edited)}")
        store.identity()
        whole = store.data() is not None
    except (FileNotFoundError, ValueError) as error:
        raise Altered(str(error)) from error
    if not whole:
        raise Altered(f"{store.data_path} is gone")
    lines = read_lines(store.metrics_path)
    if [line["step"] for line in lines] != list(range(1, last + 1)):
        raise Altered(f"{store.metrics_path} does not have each of its {last} steps once")
    for step in expected_points(config, lines):
        folder = store.checkpoint(step)
        wrong = checkpoint.damage(folder, read=REREAD_BYTES) or mismatch(store, folder)
        if wrong is not None:
            raise Altered(f"{folder}: {wrong}", mend=step == last)
        if not is_evaluated(store, config, step, questions):
            raise Altered(f"{store.evaluation_path(step)} is not whole")
