"""SVG charts: scales and shapes, which the template ``chart.svg`` draws.

Colours are defined in the style sheet of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from steelyard._visible import visible
from steelyard.report.rendering import template
from steelyard.report.text import number, shortened

Point = tuple[float, float]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about ``count`` round numbers from low to high.

    >>> nice_ticks(0, 60_000, 4)
    [0.0, 20000.0, 40000.0, 60000.0]
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(count, 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def path_of(points: Sequence[Point], *, closed: bool = False) -> str:
    """Return the ``d`` attribute of an SVG path through the points. A NaN interrupts the path."""
    parts, command = [], "M"
    for x, y in points:
        if math.isnan(x + y):
            command = "M"
        else:
            parts.append(f"{command}{x:.1f} {y:.1f}")
            command = "L"
    return "".join(parts) + ("Z" if closed and parts else "")


def _isolated(points: Sequence[Point]) -> list[Point]:
    """Return the points of a curve whose neighbours on both sides are missing."""
    known = [not math.isnan(x + y) for x, y in points]
    around = zip([False, *known], [*known[1:], False], strict=False)
    return [p for p, is_known, pair in zip(points, known, around, strict=False) if is_known and not any(pair)]


@dataclass
class Frame:
    """Chart with linear scales. Methods add shapes, and :meth:`svg` renders them.

    Sizes and margins are in SVG units; the page scales the chart.
    """

    width: float
    height: float
    x_range: tuple[float, float]  # values at the edges of the plot area
    y_range: tuple[float, float]
    title: str  # description for screen readers
    x_label: str = ""
    y_label: str = ""
    left: float = 44
    right: float = 14
    top: float = 22
    bottom: float = 36
    x_format: Callable[[float], str] = number
    y_format: Callable[[float], str] = number
    has_row_axis: bool = False  # whether the x axis is the row number; the page then adds a tooltip and zoom
    _shapes: list[tuple[str, dict[str, object], str | None]] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.y_range
        size = self.height - self.top - self.bottom
        return self.height - self.bottom - (value - low) / ((high - low) or 1.0) * size

    def _add(self, tag: str, css: str, title: str | None = None, **attributes: object) -> None:
        """Add a shape. Its ``title`` is shown as a tooltip; None closes the tag at once."""
        self._shapes.append((tag, {"class": css, **attributes}, None if title is None else visible(title)))

    def line(
        self, xs: Sequence[float], ys: Sequence[float], css: str, title: str = "", series: str = ""
    ) -> None:
        """Add a curve, which the legend entry ``series`` shows and hides."""
        points = [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]
        self._add("path", f"line {css}", title, data_series=series, d=path_of(points))
        for x, y in _isolated(points):  # a path with one point is invisible
            self._add("path", f"point {css}", data_series=series, d=f"M{x:.1f} {y:.1f}h0")

    def band(
        self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], css: str, series: str = ""
    ) -> None:
        """Add the area between two curves. NaN values are omitted."""
        known = [(x, a, b) for x, a, b in zip(xs, lows, highs, strict=True) if not math.isnan(a + b)]
        upper = [(self.x(x), self.y(b)) for x, _, b in known]
        lower = [(self.x(x), self.y(a)) for x, a, _ in reversed(known)]
        self._add("path", f"band {css}", data_series=series, d=path_of([*upper, *lower], closed=True))

    def bar(self, x0: float, x1: float, y0: float, y1: float, css: str, title: str = "") -> None:  # noqa: PLR0917  four edges
        """Add a rectangle from ``x0`` to ``x1`` and from ``y0`` to ``y1``, in axis values."""
        left, right = sorted((self.x(x0), self.x(x1)))
        top, bottom = sorted((self.y(y0), self.y(y1)))
        size = {"width": max(right - left, 0.5), "height": bottom - top}
        self._add("rect", css, title, x=left, y=top, **size)

    def mark(self, x: float, css: str, title: str = "") -> None:
        """Add a vertical line at ``x`` over the full height of the plot area."""
        low, high = self.y_range
        self._add("line", css, title, x1=self.x(x), x2=self.x(x), y1=self.y(low), y2=self.y(high))

    def dot(self, x: float, y: float, css: str, title: str = "") -> None:
        """Add a dot."""
        self._add("circle", f"dot {css}", title, cx=self.x(x), cy=self.y(y), r=4)

    def svg(self, *, n_x_ticks: int | None = None, n_y_ticks: int = 5) -> Markup:
        """Return the chart as SVG."""
        count = n_x_ticks if n_x_ticks is not None else max(2, int(self.width // 110))
        x_ticks = nice_ticks(*self.x_range, count) if count else []
        y_ticks = nice_ticks(*self.y_range, n_y_ticks)
        return Markup(  # noqa: S704  the template escapes all texts
            template("chart.svg").render(
                chart=self,
                shapes=self._shapes,
                title=visible(self.title),
                right=self.width - self.right,
                bottom=self.height - self.bottom,
                x_ticks=[(self.x(value), self.x_format(value)) for value in x_ticks],
                y_ticks=[(self.y(value), self.y_format(value)) for value in y_ticks],
                x_label=visible(self.x_label),
                y_label=shortened(self.y_label, 44),
            )
        )
