"""Small drawings as SVG text: scales, axes and shapes; colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Frame", "nice_ticks", "number", "path_of"]

Point = tuple[float, float]

GAP = "\N{EN DASH}"  # where there is no number


def number(value: float) -> str:
    """A number as people write it: few digits, thousands apart.

    >>> [number(x) for x in (0.25, 3.0, 1500, 2_000_000, 1e-6, float("nan"))]
    ['0.25', '3', '1,500', '2M', '1e-06', '–']
    """
    if math.isnan(value):
        return GAP
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from low to high, about as many as asked for.

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
    """The ``d`` of a path; nan lifts the pen."""
    parts, pen_down = [], False
    for x, y in points:
        if math.isnan(x) or math.isnan(y):
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
    return "".join(parts) + ("Z" if closed and parts else "")


@dataclass
class Frame:
    """A chart area with linear scales; shapes are added and :meth:`svg` puts them together.

    Parameters
    ----------
    width, height : float
        Size of the drawing, in the units of its text (pixels, unless it is scaled).
    x_range, y_range : pairs of float
        What the edges of the area stand for.
    title : str
        What the chart shows, for those who cannot see it.
    x_label, y_label : str
        Under and above the axes.
    left, right, top, bottom : float
        Room around the area.
    """

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    title: str
    x_label: str = ""
    y_label: str = ""
    left: float = 44
    right: float = 14
    top: float = 22
    bottom: float = 36
    x_format: Callable[[float], str] = number
    y_format: Callable[[float], str] = number
    _shapes: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Where a value stands, from the left."""
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Where a value stands, from the top."""
        low, high = self.y_range
        return (
            self.height
            - self.bottom
            - (value - low) / ((high - low) or 1.0) * (self.height - self.top - self.bottom)
        )

    def add(self, shape: str) -> None:
        """Put a shape on top of the others."""
        self._shapes.append(shape)

    def line(self, xs: Sequence[float], ys: Sequence[float], css: str, title: str = "") -> None:
        """A curve."""
        points = [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]
        self.add(f'<path class="line {css}" d="{path_of(points)}">{_title(title)}</path>')

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], css: str) -> None:
        """The area between two curves; places without numbers are left out."""
        known = [
            (x, a, b) for x, a, b in zip(xs, lows, highs, strict=True) if not (math.isnan(a) or math.isnan(b))
        ]
        there = [(self.x(x), self.y(b)) for x, _, b in known]
        back = [(self.x(x), self.y(a)) for x, a, _ in reversed(known)]
        self.add(f'<path class="band {css}" d="{path_of([*there, *back], closed=True)}"/>')

    def bar(self, x0: float, x1: float, y0: float, y1: float, css: str, title: str = "") -> None:  # noqa: PLR0917  four edges
        """A rectangle between two values on each axis."""
        left, right = sorted((self.x(x0), self.x(x1)))
        top, bottom = sorted((self.y(y0), self.y(y1)))
        self.add(
            f'<rect class="{css}" x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.5):.1f}" '
            f'height="{bottom - top:.1f}">{_title(title)}</rect>'
        )

    def dot(self, x: float, y: float, css: str, title: str = "") -> None:
        """A point."""
        self.add(
            f'<circle class="dot {css}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4">'
            f"{_title(title)}</circle>"
        )

    def svg(self, css: str = "", *, n_x_ticks: int | None = None, n_y_ticks: int = 5) -> str:
        """The whole drawing."""
        count = n_x_ticks if n_x_ticks is not None else max(2, int(self.width // 110))
        return (
            f'<svg class="chart {css}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title)}">{self._grid(count, n_y_ticks)}{"".join(self._shapes)}</svg>'
        )

    def _grid(self, n_x_ticks: int, n_y_ticks: int) -> str:
        shapes = []
        bottom, right = self.height - self.bottom, self.width - self.right
        for value in nice_ticks(*self.y_range, n_y_ticks):
            y = self.y(value)
            shapes.append(f'<line class="grid" x1="{self.left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            shapes.append(
                f'<text class="tick" x="{self.left - 6:g}" y="{y + 4:.1f}" text-anchor="end">'
                f"{self.y_format(value)}</text>"
            )
        if n_x_ticks:
            for value in nice_ticks(*self.x_range, n_x_ticks):
                x = self.x(value)
                anchor = "end" if x > right - 12 else "middle"
                shapes.append(
                    f'<text class="tick" x="{x:.1f}" y="{bottom + 16:g}" text-anchor="{anchor}">'
                    f"{self.x_format(value)}</text>"
                )
        shapes.append(
            f'<line class="axis" x1="{self.left:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
        )
        if self.x_label:
            shapes.append(
                f'<text class="label" x="{right:g}" y="{self.height - 4:g}" text-anchor="end">'
                f"{escape(self.x_label)}</text>"
            )
        if self.y_label:
            shapes.append(f'<text class="label" x="{self.left - 38:g}" y="12">{escape(self.y_label)}</text>')
        return "".join(shapes)


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
