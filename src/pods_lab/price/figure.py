"""Draw where an arm pays: its lead against the prices of a step."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from pods.analysis.compare.text import Record
from pods.analysis.figures import style
from pods.analysis.loading.study import Study
from pods_lab.price.pays import MIDDLE

WIDTH = 11.0  # inches
HEIGHT = 5.4
BAND_ALPHA = 0.15  # of intervals, which overlap
NEAR = 0.07  # share of the width within which cards are named together
TITLE_PAD = 20.0  # points, with the names of cards below
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16)


def draw(study: Study, table: pd.DataFrame) -> Figure:
    """Draw the leads of `lead_table`: against the ratio of prices, and against the fixed share."""
    figure, [by_ratio, by_share] = style.panels(2, WIDTH, HEIGHT)
    by_ratio.set_xscale("log")
    _lines(by_ratio, study, table, "ratio")
    by_ratio.xaxis.set_major_locator(FixedLocator(TICKS))
    by_ratio.xaxis.set_minor_locator(NullLocator())
    by_ratio.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    by_ratio.set_xlabel("r = price of a rollout trained on / of one generated")
    by_ratio.set_title("without a fixed cost", pad=TITLE_PAD)

    _lines(by_share, study, table, "fixed_share")
    by_share.set_xlabel("share of a step's cost that is fixed")
    by_share.set_title(f"at r = {MIDDLE:g}", pad=TITLE_PAD)

    baseline = table.baseline.iloc[0]
    by_ratio.set_ylabel(f"lead over {baseline} at equal cost ({study.difference_unit})")
    title = (
        "mean accuracy over the span, 95 % t interval; hollow: at all prices of the card above it"
    )
    style.legend_below(figure, by_ratio if (table.by == "ratio").any() else by_share, title)
    return figure


def _lines(axes: Axes, study: Study, table: pd.DataFrame, by: str) -> None:
    """Draw the lead of each arm against one property of the prices, and mark the cards."""
    axes.axhline(0, color="#000000", linewidth=0.8)
    lines = table[table.by == by]
    if lines.empty:
        axes.text(0.5, 0.5, "no lead can be drawn here", transform=axes.transAxes, ha="center")
        return
    for series, points in lines.groupby("series", sort=False):
        look = style.look_of(study, str(series))
        low = study.scale * points.low
        high = study.scale * points.high
        axes.fill_between(points[by], low, high, color=look["color"], alpha=BAND_ALPHA, linewidth=0)
        lead = study.scale * points.estimate
        label = style.legend_name(str(series))
        axes.plot(points[by], lead, **look, markevery=4, clip_on=False, label=label)

    axes.set_xlim(lines[by].min(), lines[by].max())
    _mark_cards(axes, study, table[table.by == "card"], by)


def _mark_cards(axes: Axes, study: Study, cards: pd.DataFrame, by: str) -> None:
    """Mark the leads at the prices of each card, and name it above the panel."""
    first, last = axes.get_xlim()
    names: dict[float, list[str]] = {}  # by where they stand, as a share of the width
    for name, points in cards.sort_values(by, kind="stable").groupby("card", sort=False):
        place = points[by].iloc[0]
        if not first <= place <= last:
            continue

        axes.axvline(place, color="#888888", linewidth=0.8, linestyle=":")
        row: Record
        for row in points.itertuples():
            look = style.look_of(study, row.series) | {"markerfacecolor": "none"}
            axes.plot([place], [study.scale * row.estimate], **look, linestyle="", zorder=3)

        across = float(axes.transAxes.inverted().transform(axes.transData.transform((place, 0)))[0])
        near = [where for where in names if across - where < NEAR]
        names.setdefault(near[-1] if near else across, []).append(str(name))

    for where, together in names.items():
        axes.annotate(
            ", ".join(together),
            (where, 1.01),
            xycoords="axes fraction",
            va="bottom",
            fontsize="x-small",
        )
