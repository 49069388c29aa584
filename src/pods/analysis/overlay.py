"""Draw the accuracy of one study over that of another, such as published logs over our own runs."""

import pandas as pd
from matplotlib.figure import Figure

from pods.analysis import curve_plots, plots
from pods.analysis.curves import curves
from pods.analysis.figures import Drawing, title
from pods.analysis.look import DEFAULT
from pods.analysis.series_names import SEPARATOR
from pods.analysis.study import Study
from pods.analysis.tables import clock_text

SAME_SCALE = 3.0  # if one study lasts longer than this many times the other, they share no axis


def overlaid(study: Study, over: Study) -> Drawing:
    """Draw the accuracy of both studies against training time, with imported logs dashed.

    If one study lasted much longer, each is drawn against the share of its own time, so that shapes
    can be compared but seconds cannot. Accuracy is that of the PODS authors' grader if logs are
    imported and all runs were graded by it, so that both studies show the same measure.
    """
    metric, label = _measure(study, over)
    both = [(one, curves(one).query(f"metric == {metric!r}")) for one in (study, over)]
    ends = [float(curve.train_seconds.max()) for _, curve in both]
    shares = max(ends) > SAME_SCALE * min(ends)
    unit, sign = plots.time_unit(max(ends))
    durations = "; ".join(
        f"{clock_text(end)} on {SEPARATOR.join(one.machines)}"
        for (one, _), end in zip(both, ends, strict=True)
    )

    def draw() -> Figure:
        figure, [axes] = plots.panels(1, 7.5, 4.4)
        first = 0
        for (one, curve), end in zip(both, ends, strict=True):
            curve_plots.against_time(axes, curve, one, end if shares else unit, first)
            first += curve.series.nunique()
        axes.set_xlabel(
            f"share of the training time ({durations})"
            if shares
            else f"training time ({sign}; {durations})"
        )
        axes.set_xlim(0, 1 if shares else max(ends) / unit)
        axes.set_ylabel(label.replace(", ", ",\n", 1))
        axes.legend(title=DEFAULT.legend, loc="lower right")
        figure.suptitle("\n".join([title(study), title(over)]))
        return figure

    return Drawing(
        f"accuracy_vs_time_{over.name}",
        f"{over.name} over {study.name}: {label}, against training time. {over.note}",
        draw,
        pd.concat([curve.assign(study=one.name) for one, curve in both], ignore_index=True),
        pd.concat([one.evaluations.assign(study=one.name) for one, _ in both], ignore_index=True),
        over=over,
    )


def _measure(study: Study, over: Study) -> tuple[str, str]:
    """Return the metric that can be compared between the two studies, and its axis label."""
    if study.seeded and over.seeded:
        return "accuracy", "accuracy, each study on its own questions"
    tables = [one.evaluations for one in (study, over)]
    if all("lenient" in table and table.lenient.notna().all() for table in tables):
        return "lenient", "accuracy by the PODS authors' grader, each study on its own questions"
    return "accuracy", "accuracy, each study by its own grader, on its own questions"
