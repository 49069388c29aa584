"""`pods price STUDY`: what a step costs by n and m, from finished runs, and where an arm pays."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pods.cli.options import add_study_options, typed_arms
from pods.config.parse import ConfigError
from pods.runs.files import replace
from pods.runs.find import find_study
from pods.system.text import short

if TYPE_CHECKING:
    from pods.analysis.loading.filter import StudyFilter
    from pods.analysis.loading.study import Study
    from pods_lab.price.model import Pair


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    add_study_options(parser, allow=True)
    add = parser.add_argument
    add("--nm", action="append", metavar="N,M", help="sizes to predict (default: those measured)")
    add("--seconds", type=float, help="training clock per run (default: the study's budget)")
    add("--published", action="store_true", help="the PODS authors' runs on one L40S, not a study")
    add("--card", type=Path, metavar="FILE", help="write the prices, for --prices of other verbs")
    add("--map", action="store_true", help="draw each arm's lead against the prices of a step")
    add("--arms", dest="shown", metavar="A,B,...", help="of --card and --map: arms (default: all)")
    add("--baseline", metavar="ARM", help="of --map: the arm that is led (default: GRPO)")


def run(options: argparse.Namespace) -> None:
    """Print what a step costs, and write tables; or write a card, or draw the map."""
    from pods_lab.price.costs import authors_costs, parse_nm

    if options.map and options.card:
        raise ConfigError("--card", options.card, "must be asked for without --map")
    sizes = [parse_nm(word) for word in options.nm or ()]
    if options.published:
        print("\n".join(authors_costs(sizes, options.seconds).lines))
        return

    from pods.analysis.loading.filter import StudyFilter, apply_filter
    from pods.analysis.loading.load import load

    folder, runs = find_study(options.study, options.runs_dir)
    study = load(folder, runs, options.allow)
    chosen = StudyFilter(arms=typed_arms(options.shown), baseline=options.baseline)
    if options.map:
        _map(folder, runs, apply_filter(study, chosen), chosen)
    elif options.card:
        _card(apply_filter(study, chosen), options.card)
    else:
        _costs(folder, study, sizes, options.seconds)


def _costs(folder: Path, study: "Study", sizes: "list[Pair]", seconds: float | None) -> None:
    """Print the fits of a study, and write their tables."""
    from pods.analysis.writing import figures_folder
    from pods_lab.price.costs import costs

    report = costs(study, sizes, seconds)
    figures = figures_folder(folder)
    for name, table in report.tables.items():
        replace(figures / f"price.{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    print("\n".join(short(study.missing) + short(study.inconsistencies) + report.lines))
    print(f"tables: {figures}/price.*")


def _card(study: "Study", path: Path) -> None:
    """Write the prices of a study's steps into a file."""
    from pods_lab.price.card import fitted_card, write_card

    card = fitted_card(study)
    write_card(card, path)
    print(f"{card.formula()}, by {card.fitted_to}")
    print(f"card: {path} (for `pods compare STUDY --prices {path}`)")


def _map(folder: Path, runs: Sequence[Path], study: "Study", chosen: "StudyFilter") -> None:
    """Draw where each arm of a study pays, and say it in a sentence for each arm and card."""
    from pods.analysis.figures.style import METADATA, save, screen
    from pods.analysis.writing import folder_for, provenance, write_csv, write_json
    from pods.config.price_card import known_cards
    from pods_lab.price.figure import draw
    from pods_lab.price.pays import lead_table
    from pods_lab.price.pays_text import card_sentences, sentences

    table, left_out = lead_table(study, known_cards())
    lines = [*sentences(table), "", *card_sentences(table, study), *left_out]

    stem = folder_for(folder, runs, chosen) / "map"
    write_csv(stem.with_suffix(".csv"), table, study)
    write_json(stem.with_suffix(".json"), {"lines": lines, **provenance(study)})
    with screen():
        save(draw(study, table), [stem.with_suffix(suffix) for suffix in METADATA])
    print("\n".join(short(study.missing) + short(study.inconsistencies) + lines))
    print(f"figure: {stem}.png (PDF, SVG, CSV and JSON beside it)")
