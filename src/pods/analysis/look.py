"""How the figure of a study's accuracy looks: size, panels, limits, error band, title, fonts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import matplotlib
from matplotlib import style as styles

Limits = tuple[float, float]
Panel = Literal["all", "accuracy", "differences", "time"]
Band = Literal["se", "t95", "none"]
ERRORS = {"se": " ± 1 standard error", "t95": " with 95 % t interval", "none": ""}
COLUMN = 3.25  # inches: one of two columns of a page
WIDEST, NARROWEST = 40.0, 1.5


@dataclass(frozen=True)
class Look:
    """What a user chose of a figure; the defaults are those of every study's figure."""

    panel: Panel = "all"
    """The curves with the differences below and the time per step beside them, or one of these."""
    band: Band = "se"
    """What is shaded around a mean: one standard error, the 95 % t interval, or nothing."""
    width: float | None = None
    """Inches; None: 11 for all panels, 6.5 for one."""
    xlim: Limits | None = None
    """Ends of the x axis, in the unit that it shows."""
    ylim: Limits | None = None
    """Ends of the y axis of the curves."""
    title: str | None = None
    """None: the study and its budget; an empty text: no title."""
    size: float = 9.0
    """Points of the font, if there is no style file."""
    style: Path | None = None
    """A matplotlib style file."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn.

        Raises:
            ValueError: a size, limit or file is not allowed; the message names it.
        """
        for key, allowed in (("panel", Panel), ("band", Band)):
            if getattr(self, key) not in get_args(allowed):
                raise ValueError(
                    f"{key}={getattr(self, key)}: must be one of {', '.join(get_args(allowed))}"
                )
        if self.width is not None and not NARROWEST <= self.width <= WIDEST:
            raise ValueError(f"width={self.width:g}: must be {NARROWEST} to {WIDEST:g} inches")
        for key, limits in (("xlim", self.xlim), ("ylim", self.ylim)):
            if limits is not None and not limits[0] < limits[1]:
                raise ValueError(f"{key}={limits[0]:g},{limits[1]:g}: must be LOW,HIGH")
        if self.style is not None and not self.style.is_file():
            raise ValueError(f"style={self.style}: must be a matplotlib style file")

    @property
    def inches(self) -> float:
        """Width of the figure."""
        return self.width or (11.0 if self.panel == "all" else 6.5)

    @property
    def small(self) -> bool:
        """Whether the figure is narrow, so that explanations belong into its caption."""
        return self.inches < 5

    @property
    def error(self) -> str:
        """What the band around a mean is, after the words "mean over runs"."""
        return ERRORS[self.band]

    @property
    def legend(self) -> str:
        """Title of the legend."""
        error = self.error.replace("standard error", "stderr")
        return f"mean over n runs{error}; thin: single runs"

    @contextmanager
    def styled(self) -> Iterator[None]:
        """Apply the style file to what is drawn and saved in the block.

        Raises:
            ValueError: matplotlib cannot read the style file.
        """
        with matplotlib.rc_context():
            if self.style is not None:
                try:
                    styles.use(self.style)
                except (OSError, ValueError) as error:
                    raise ValueError(f"style={self.style}: {error}") from error
            yield


DEFAULT = Look()
PAPER = Look(panel="accuracy", width=COLUMN, title="", size=8.0)
"""One column of a paper: the curves alone, without a title."""
