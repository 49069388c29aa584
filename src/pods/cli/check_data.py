"""`pods check-data`: list every problem of a data set at once, and show what the model is asked."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from pods.config.checks import GENERATED, missing_inputs
from pods.config.parse import parse
from pods.config.schema import TaskConfig

if TYPE_CHECKING:
    from pods.tasks.datasets.splits import Split

EXAMPLES = 3


def add_options(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|KEY=VALUE",
        help="a file or folder for task=jsonl, and overrides as for run.py, such as "
        "task.question_key=problem",
    )


def check_data(options: Namespace) -> int:
    """Print every malformed row, the sizes of the splits and some prompts.

    Returns:
        0 if a run could use the data as they are, else 1.

    Raises:
        ValueError: the overrides are not allowed, or the data cannot be read.
    """
    from pods.config.compose import compose  # these take long to import
    from pods.tasks.load import read_rows

    overrides = [word for word in options.words if "=" in word]
    paths = [word for word in options.words if "=" not in word]
    if len(paths) > 1:
        raise ValueError(f"{paths[1]}: must be KEY=VALUE; there is one FILE, {paths[0]}")
    mine = ["task=jsonl", f"task.path={_quoted(paths[0])}"] if paths else []
    config = parse(compose(["model=smollm2_135m", *mine, *overrides]))
    task = config.task
    if task.name in GENERATED:
        raise ValueError(f"task={task.name}: must be a task with data; {task.name} is generated")
    unreadable = [error for error in missing_inputs(config) if "task." in str(error)]
    if unreadable:
        raise unreadable[0]
    train, test = read_rows(task)
    for reason in train.malformed + test.malformed:
        print(reason)
    bad = len(train.malformed) + len(test.malformed)
    print(f"{len(train.rows)} train rows, {len(test.rows)} test rows, {bad} malformed")
    if not (train.rows and test.rows):
        return 1
    _show(task, train, test)
    return 1 if bad and task.malformed == "fail" else 0


def _quoted(path: str) -> str:
    """Write a path so that Hydra takes it as it is."""
    return "'" + path.replace("'", "\\'") + "'"


def _show(task: TaskConfig, train: "Split", test: "Split") -> None:
    """Print what the model is asked, and what answer is right."""
    from pods.tasks.load import wording
    from pods.tasks.prompts import make_problems

    problems, _ = make_problems(task, wording(task), train, test)
    for message in problems[0].messages[:-1]:
        print(f"\n[{message['role']}]\n{message['content']}")
    for problem in problems[:EXAMPLES]:
        print(f"\n[user, {problem.id}; right: {problem.gold}]\n{problem.question}")
