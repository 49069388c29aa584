"""Define the W&B dashboard of a study as code: a saved view of the project, with its runs only.

Every panel is drawn over the training clock, with a mean and a band of ±1 standard error per
series. W&B bins the clock, so use `pods plot` for the figure of a paper. The view is built without
a network; saving it needs an account, and was not tried.
"""

from typing import Any

from pods.config.schema import Config
from pods.runs.tracking.exporter import check_key
from pods.system.errors import as_short_text

RUNS_SHOWN = 200  # W&B's own limit of 10 would leave runs out of the means
PHASES = ("generate", "reward", "select", "update", "sync")
PANELS = {
    "Evaluation": ("eval/accuracy", "eval/format", "eval/length", "eval/timeouts"),
    "Rollouts": tuple(
        f"rollouts/{name}" for name in ("reward", "correct", "length", "zero_variance_groups")
    ),
    "Training": ("train/grad_norm", "train/entropy", "train/logprob_gap"),
    "Seconds per step": tuple(f"time/{phase}_seconds" for phase in PHASES),
}


def save(config: Config) -> str:
    """Save the dashboard of a run's study as a new view of its project; return the address.

    Raises:
        ValueError: there is no key, W&B failed, or wandb-workspaces is not installed.
    """
    check_key()
    import wandb

    tracking = config.tracking
    try:
        entity = tracking.entity or str(wandb.Api().default_entity)
        return str(dashboard(tracking.project, entity, config.study).save().url)
    except ImportError as error:
        raise ValueError('a dashboard needs: pip install "pods-rl[dashboard]"') from error
    except Exception as error:  # W&B raises many kinds
        raise ValueError(
            f"the dashboard of {config.study} was not saved: W&B failed ({as_short_text(error)})"
        ) from error


def dashboard(project: str, entity: str, study: str) -> Any:
    """Return the dashboard of a study, a `wandb_workspaces.workspaces.Workspace`."""
    from wandb_workspaces import expr, workspaces

    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=f"{study}: accuracy at equal wall-clock",
        sections=[
            workspaces.Section(name=name, panels=[_panel(key) for key in keys], is_open=True)
            for name, keys in PANELS.items()
        ],
        settings=workspaces.WorkspaceSettings(x_axis="train_seconds", max_runs=RUNS_SHOWN),
        runset_settings=workspaces.RunsetSettings(filters=[expr.Metric("Group") == study]),
    )


def _panel(key: str) -> Any:
    """Return a line plot of one number over the training clock."""
    from wandb_workspaces.reports.v2 import interface as panels

    return panels.LinePlot(
        title=key,
        x="train_seconds",
        y=[key],
        title_x="training clock (s)",
        groupby=panels.Config("series"),
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=RUNS_SHOWN,
    )
