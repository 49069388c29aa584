"""The command line of `pods`: its verbs and their options."""

import argparse
from pathlib import Path

from pods.cli import (
    advise,
    check_data,
    evaluate_checkpoint,
    export,
    fetch,
    generate,
    gradient_probe,
    plan,
)

REMOVABLE_STATES = ("pending", "preempted", "lost", "failed", "done")
RELEASES = ("gsm8k", "math", "llama", "h100s", "a100s")


def make_parser() -> argparse.ArgumentParser:
    """Declare the verbs and their options."""
    parser = argparse.ArgumentParser(
        prog="pods",
        description="Train, inspect, evaluate, compare, plan and clean up runs. `pods run` is "
        "`python src/run.py`, and `pods sweep` the same with -m.",
        epilog="--debug shows the traceback of an error.",
    )
    add = parser.add_subparsers(dest="verb", required=True, metavar="VERB").add_parser
    runs_dir, study, figure = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    runs_dir.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder of all studies (default: runs)"
    )
    study.add_argument(
        "study", nargs="?", default="default", help="name of the study (default: default)"
    )
    figure.add_argument(
        "--allow-missing", action="store_true", help="accept studies with missing runs"
    )
    figure.add_argument(
        "--allow-mixed", action="store_true", help="accept runs that are not comparable"
    )
    view = _view_options()
    of_study, of_figure = [study, runs_dir], [study, runs_dir, figure]

    add("run", help="train one run, or a study with experiment=NAME; takes KEY=VALUE")
    add("sweep", help="train several runs: nm.m=4,8 'seed=range(8)'")
    status = add("status", parents=of_study, help="show one line per run")
    status.add_argument("--json", action="store_true", help="print JSON instead of a table")
    status.add_argument("--watch", action="store_true", help="refresh until no run is running")
    clean = add("clean", parents=of_study, help="list files that can be removed, or remove them")
    clean.add_argument(
        "--state",
        action="append",
        default=[],
        choices=REMOVABLE_STATES,
        help="also select entire runs in this state, with all their results",
    )
    clean.add_argument("--yes", action="store_true", help="remove the files")
    evaluate = add(
        "evaluate",
        parents=of_study,
        help="make a study's missing or damaged evaluations; --step: evaluate one checkpoint",
    )
    evaluate.add_argument("--jobs", type=int, help="runs evaluated at once (default: as a sweep)")
    evaluate.add_argument(
        "--on",
        metavar="SET",
        help="evaluate on this further test set instead, or with --step on a file of JSON lines",
    )
    evaluate.add_argument(
        "--sets-path", metavar="FOLDER", help="folder with SET.jsonl (default: as configured)"
    )
    evaluate_checkpoint.add_options(evaluate)
    add(
        "aggregate",
        parents=[*of_figure, view],
        help="check a study, write curves and tables as CSV",
    )
    plot = add("plot", parents=[*of_figure, view], help="like aggregate, and draw the figures")
    plot.add_argument(
        "--overlay",
        metavar="STUDY",
        help="draw the accuracy of STUDY over this study's; if one is imported and both have it, "
        "by the authors' grader",
    )
    plot.add_argument(
        "--all",
        action="store_true",
        help="also draw format, length, reward, phases and the authors' grader",
    )
    _add_look(plot)
    _add_compare(
        add("compare", parents=[runs_dir, figure, view], help="compare arms statistically")
    )
    _add_rank(
        add(
            "rank",
            parents=[*of_figure, _view_options(baseline=False)],
            help="rank the arms from the best",
        )
    )
    plan.add_options(add("plan", parents=of_figure, help="predict the cost of steps and sweeps"))
    advise.add_options(
        add("advise", help="say which n and m pay here, by a pilot of a model and a task")
    )
    add("report", parents=of_figure, help="write one HTML page about a study")
    _add_published(
        add("import-published", parents=[runs_dir], help="import the PODS authors' logs"),
        add(
            "reproduce",
            parents=[runs_dir, figure],
            help="draw the PODS paper's figures from the authors' logs",
        ),
    )
    sync = add("sync", parents=of_study, help="create W&B runs from the files of runs")
    sync.add_argument(
        "--tensorboard", action="store_true", help="write TensorBoard files instead, without W&B"
    )
    sync.add_argument("--offline", action="store_true", help="write folders for `wandb sync`")
    sync.add_argument("--dashboard", action="store_true", help="also save a W&B view of the study")
    generate.add_options(
        add("generate", parents=[runs_dir], help="ask a checkpoint a question, as training asks")
    )
    gradient_probe.add_options(
        add(
            "probe",
            parents=[runs_dir],
            help="measure at a checkpoint which rule, n and m estimate the gradient best",
        )
    )
    export.add_options(
        add("export", parents=[runs_dir], help="write a checkpoint as a folder for transformers")
    )
    get = add("fetch", help="download weights without a model hub, or the published logs")
    get.add_argument("what", choices=[*fetch.MODELS, "published"], help="what to download")
    check_data.add_options(
        add("check-data", help="list every problem of a data set, and show some prompts")
    )
    add("doctor", help="check whether this machine is fit for a run").add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="overrides as for run.py"
    )
    return parser


def _add_published(published: argparse.ArgumentParser, paper: argparse.ArgumentParser) -> None:
    """Declare the options of the verbs that read the authors' logs."""
    published.add_argument("folder", type=Path, help="folder with the logs")
    published.add_argument("--study", default="published", help="study to create")
    published.add_argument(
        "--family", choices=RELEASES, help="release to import, if the folder has several"
    )
    published.add_argument("--dataset", help="test set (default: that of the training task)")
    published.add_argument("--allow-missing", action="store_true", help="skip irregular runs")
    paper.add_argument("name", nargs="?", help="figure, or all (default: list them)")
    paper.add_argument(
        "folder", nargs="?", type=Path, help="folder of the logs (default: what fetch stored)"
    )
    paper.add_argument("--study", help="study of your own runs to draw beside them")


def _view_options(baseline: bool = True) -> argparse.ArgumentParser:
    """Declare the choice of what figures and tables show; see `pods.analysis.view`."""
    view = argparse.ArgumentParser(add_help=False)
    view.add_argument(
        "--with",
        dest="further",
        metavar="STUDY,...",
        help="show the runs of these studies too",
    )
    view.add_argument(
        "--arms", dest="chosen_arms", metavar="A,B,...", help="arms to show (default: all)"
    )
    view.add_argument(
        "--metric", help="accuracy, lenient (authors' grader), format, both, length or reward"
    )
    view.add_argument(
        "--x",
        help="measure over train_seconds, steps, rollouts, generated_tokens or trained_tokens",
    )
    view.add_argument(
        "--clock",
        metavar="NAME",
        help="time each step by the prices of another machine: l40s or h100x8 (published), a study "
        "(its fit), or a JSON file (a plan's plan.clock.json)",
    )
    view.add_argument("--until", type=float, metavar="END", help="end of the window, in units of x")
    if baseline:
        view.add_argument("--baseline", metavar="ARM", help="compare with ARM (default: GRPO)")
    view.add_argument(
        *("--label", "--labels"),
        dest="labels",
        action="append",
        metavar="ARM=TEXT",
        help="another name for an arm (may be repeated)",
    )
    return view


def _add_look(plot: argparse.ArgumentParser) -> None:
    """Declare how one figure is drawn for a paper or a talk; see `pods.analysis.look`."""
    look = plot.add_argument_group("one figure of the accuracy, as chosen here")
    look.add_argument(
        "--paper", action="store_true", help="one column: 3.25 in, 8 pt, the curves alone, no title"
    )
    look.add_argument("--panel", help="all, accuracy, differences or time (default: all)")
    look.add_argument("--width", type=float, metavar="INCHES")
    look.add_argument("--xlim", metavar="LOW,HIGH", help="ends of the x axis, in its unit")
    look.add_argument("--ylim", metavar="LOW,HIGH", help="ends of the accuracy's axis")
    look.add_argument("--band", help="se, t95 or none (default: se)")
    look.add_argument("--title", help="title of the figure")
    look.add_argument("--no-title", dest="title", action="store_const", const="")
    look.add_argument("--style", type=Path, metavar="FILE", help="matplotlib style file")
    look.add_argument(
        "--out", type=Path, metavar="FILE", help="file.pdf, .png or .svg (default: styled.* in all)"
    )


def _add_rank(rank: argparse.ArgumentParser) -> None:
    rank.add_argument(
        "--by",
        default="mean",
        metavar="mean|final|time_to:X",
        help="mean or final accuracy, or the time to accuracy X, as in time_to:0.8 (default: mean)",
    )


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.add_argument(
        "arms",
        nargs="*",
        metavar="ARM",
        help="arms to compare, the first with each other one (default: all with the GRPO arm)",
    )
    compare.add_argument("--study", default="default", help="name of the study (default: default)")
    compare.add_argument(
        "--target", type=float, action="append", help="accuracy whose time to reach is compared"
    )
    compare.add_argument(
        "--all-pairs",
        action="store_true",
        help="compare every two arms (default: only with the GRPO arm, or of more than four arms "
        "without one, with the best; up to four without one are all compared)",
    )
    compare.add_argument(
        "--verbose", action="store_true", help="also print bootstrap, exact tests and power"
    )
