"""Line plots of series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers.result import Picture, Series

__all__ = ["COLOURS", "line_picture", "save_picture"]

# Colours that can be distinguished with color vision deficiency (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("solid", "dashed", "dotted")  # for the second and third curve of a colour

# Maximum number of characters per line of the legend.
_LETTERS_AN_INCH = 12
_LETTERS_OF_A_MARK = 6


def line_picture(
    name: str,
    caption: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    y_range: tuple[float, float] | None = None,
) -> Picture:
    """Return a picture with one panel per panel of the series."""
    own = [line for line in series if line.figure == name]
    panels = list(dict.fromkeys(line.panel for line in own))
    columns = 2 if len(panels) == 4 else min(len(panels), 3) or 1
    lines = math.ceil(len(panels) / columns) or 1
    width = 4.0 * columns + 1.0

    def draw(figure: Any) -> None:
        grid = figure.subplots(lines, columns, squeeze=False, sharey=y_range is not None)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, [line for line in own if line.panel == panel])
            axes.set(title=panel, xlabel=x_label, ylabel=y_label)
            if log_x:
                axes.set_xscale("log")
            if y_range is not None:
                axes.set_ylim(*y_range)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        if len(own) > len(panels):
            # The legend is below the panels, where it covers no curve.
            handles, labels = grid.flat[0].get_legend_handles_labels()
            fit = int(_LETTERS_AN_INCH * width / (max(map(len, labels)) + _LETTERS_OF_A_MARK))
            figure.legend(handles, labels, loc="outside lower center", ncols=max(fit, 1), frameon=False)

    return Picture(name, caption, draw, (width, 3.4 * lines))


def _draw_panel(axes: Any, lines: Sequence[Series]) -> None:
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        style = _STYLES[number // len(COLOURS) % len(_STYLES)]
        x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
        axes.plot(
            x, y, color=colour, linestyle=style, label=line.label, linewidth=1.6, marker="o", markersize=3
        )
        if line.std is not None:
            spread = np.asarray(line.std, dtype=float)
            axes.fill_between(x, y - spread, y + spread, color=colour, alpha=0.12, linewidth=0)
    axes.grid(alpha=0.25)


def save_picture(picture: Picture, path: Path) -> None:
    """Draw a picture to a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=picture.size, layout="constrained")
    picture.draw(figure)
    figure.savefig(path, dpi=90, metadata={"Software": None})
