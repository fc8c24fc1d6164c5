"""SVG charts: scales, axes and shapes. Colours are defined in the style sheet of the page.

All text is inserted with ``Markup.format``, which escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from steelyard._visible import visible

Point = tuple[float, float]

GAP = "\N{EN DASH}"  # printed for a missing number


def number(value: float) -> str:
    """Return a number with three significant digits or thousands separators.

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


def shortened(text: object, length: int = 32) -> str:
    """Return the text truncated to a length, because SVG text does not wrap.

    >>> shortened("a" * 40, 9)
    'aaaaaaaa…'
    """
    shown = visible(text)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


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
    _shapes: list[Markup] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low, high = self.y_range
        size = self.height - self.top - self.bottom
        return self.height - self.bottom - (value - low) / ((high - low) or 1.0) * size

    def _add(self, tag: str, css: str, content: str | None = None, **attributes: object) -> None:
        self._shapes.append(_element(tag, css, content, **attributes))

    def line(
        self, xs: Sequence[float], ys: Sequence[float], css: str, title: str = "", series: str = ""
    ) -> None:
        """Add a curve, which the legend entry ``series`` shows and hides."""
        points = [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]
        self._add("path", f"line {css}", _title(title), data_series=series, d=path_of(points))
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
        self._add("rect", css, _title(title), x=left, y=top, **size)

    def mark(self, x: float, css: str, title: str = "") -> None:
        """Add a vertical line at ``x`` over the full height of the plot area."""
        ends = dict(zip(("y1", "y2"), map(self.y, self.y_range), strict=True))
        self._add("line", css, _title(title), x1=self.x(x), x2=self.x(x), **ends)

    def dot(self, x: float, y: float, css: str, title: str = "") -> None:
        """Add a dot."""
        self._add("circle", f"dot {css}", _title(title), cx=self.x(x), cy=self.y(y), r=4)

    def svg(self, *, n_x_ticks: int | None = None, n_y_ticks: int = 5) -> Markup:
        """Return the chart as SVG."""
        count = n_x_ticks if n_x_ticks is not None else max(2, int(self.width // 110))
        shapes = Markup().join(self._shapes)
        data: Markup | str = ""
        if self.has_row_axis:  # shapes are clipped to the plot area, because the chart can be zoomed
            width = self.width - self.left - self.right
            shapes = Markup(
                '<svg class="area" x="{0:g}" y="0" width="{1:g}" height="{2:g}" '
                'viewBox="{0:g} 0 {1:g} {2:g}"><g class="moving">{3}</g></svg>'
            ).format(self.left, width, self.height - self.bottom + 1, shapes)
            edges = self.left, self.width - self.right, self.top, self.height - self.bottom
            data = Markup(
                ' data-left="{:g}" data-right="{:g}" data-top="{:g}" data-bottom="{:g}" data-x0="{!r}" '
                'data-x1="{!r}" data-y0="{!r}" data-y1="{!r}"'
            ).format(*edges, *map(float, (*self.x_range, *self.y_range)))
        return Markup(
            '<svg class="{}" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}"{}>{}{}</svg>'
        ).format(
            "chart along" if self.has_row_axis else "chart",
            self.width,
            self.height,
            visible(self.title),
            data,
            self._grid(count, n_y_ticks),
            shapes,
        )

    def _grid(self, n_x_ticks: int, n_y_ticks: int) -> Markup:
        bottom, right = self.height - self.bottom, self.width - self.right
        width = {"x1": f"{self.left:g}", "x2": f"{right:g}"}
        shapes = []
        for value in nice_ticks(*self.y_range, n_y_ticks):
            y = self.y(value)
            shapes.append(_element("line", "grid", **width, y1=y, y2=y))
            shapes.append(_text("tick", self.left - 6, y + 4, "end", self.y_format(value)))
        for value in nice_ticks(*self.x_range, n_x_ticks) if n_x_ticks else ():
            x = self.x(value)
            anchor = "end" if x > right - 30 else "middle"
            shapes.append(_text("tick xtick", x, bottom + 16, anchor, self.x_format(value)))
        shapes.append(_element("line", "axis", **width, y1=f"{bottom:g}", y2=f"{bottom:g}"))
        if self.x_label:
            shapes.append(_text("label", right, self.height - 4, "end", self.x_label))
        if self.y_label:
            shapes.append(_text("label", self.left - 38, 12, "start", shortened(self.y_label, 44)))
        return Markup().join(shapes)


def _element(tag: str, css: str, content: str | None = None, **attributes: object) -> Markup:
    """Return an SVG element with a CSS class. Coordinates have one decimal."""
    shown = {"class": css, **attributes}
    texts = [
        Markup(' {}="{}"').format(name.replace("_", "-"), f"{x:.1f}" if isinstance(x, float) else x)
        for name, x in shown.items()
    ]
    end = Markup("/>") if content is None else Markup(">{}</{}>").format(content, tag)
    return Markup("<{}{}{}").format(tag, Markup().join(texts), end)


def _text(css: str, x: float, y: float, anchor: str, text: str) -> Markup:
    return _element("text", css, visible(text), x=float(x), y=float(y), text_anchor=anchor)


def _title(text: str) -> Markup:
    return Markup("<title>{}</title>").format(visible(text)) if text else Markup()
