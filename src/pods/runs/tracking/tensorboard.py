"""Write a run's rows as TensorBoard's event files, in its folder `tensorboard`.

Each attempt writes all rows anew from the run's files, so that a step which a resumed run repeats
is there once. Values stand at their step; "relative" time in TensorBoard is the training clock.
Events are written at once: tensorboardX's own writer has a thread, which waits for ever once the
disk is full.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from pods.config.checks import NO_TENSORBOARD
from pods.runs.files import remove
from pods.runs.store import RunStore
from pods.runs.tracking.examples import COLUMNS, Example
from pods.runs.tracking.names import AXIS, EXAMPLES
from pods.runs.tracking.rows import Row

FOLDER = "tensorboard"


def check_installed() -> None:
    """Check that event files can be written.

    Raises:
        ValueError: tensorboardX is not installed.
    """
    if find_spec("tensorboardX") is None:
        raise ValueError(NO_TENSORBOARD)


class TensorBoardRun:
    """An open event file, which belongs to one run folder."""

    first = 0
    """The first position that the file lacks."""

    def __init__(self, store: RunStore) -> None:
        """Remove what earlier attempts wrote, and begin a file."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        folder = store.folder / FOLDER
        if folder.exists():
            remove(folder)
        folder.mkdir()
        self.new_event = event_pb2.Event
        self.writer: Any = EventsWriter(str(folder / "events"))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # a viewer that shows the removed file forgets its points
        self.writer.write_event(event_pb2.Event(step=0, session_log=start))

    def send(self, rows: Iterable[Row]) -> None:
        """Write rows, in order of their positions."""
        from tensorboardX import summary

        for row in rows:
            for name, value in row.values.items():
                if name not in AXIS:
                    self._write(row, summary.scalar(name, value))
            if row.examples:
                self._write(row, summary.text(EXAMPLES, as_markdown(row.examples)))
            self.first = row.position + 1
        self.writer.flush()

    def _write(self, row: Row, summary: Any) -> None:
        step, seconds = int(row.values["step"]), row.values["train_seconds"]
        self.writer.write_event(self.new_event(step=step, wall_time=seconds, summary=summary))

    def close(self, summary: Mapping[str, Any], exit_code: int) -> None:
        """Close the file; TensorBoard shows no summary."""
        self.writer.close()


def as_markdown(examples: Sequence[Example]) -> str:
    """Return rollouts as a table.

    >>> print(as_markdown([(2, "1+1", "a|b", 0.5, None, False)]))
    | step | prompt | completion | reward | advantage | kept |
    | --- | --- | --- | --- | --- | --- |
    | 2 | 1+1 | a&#124;b | 0.5 |  | False |
    """
    cells = [
        ["" if value is None else str(value) for value in row]
        for row in (COLUMNS, ["---"] * len(COLUMNS), *examples)
    ]
    escaped = [
        [text.replace("|", "&#124;").replace("\n", "<br>") for text in texts] for texts in cells
    ]
    return "\n".join(f"| {' | '.join(texts)} |" for texts in escaped)
