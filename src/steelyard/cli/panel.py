"""The live panel of ``steelyard stream``: progress, measures and class share as they come."""

from __future__ import annotations

import math
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import ConsoleRenderable, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from steelyard._visible import visible
from steelyard.cli.output import talk, talk_console

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams import RowStream

__all__ = ["StreamPanel", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_EVERY = 0.2  # seconds between two drawings
_WIDEST = 110
_ROOM = 2  # for the ^C that a terminal writes behind the panel; on a line of its own it would push it up
_LONGEST_NAME = 22
_FALL = 0.1  # below the measure of all rows at which the measure of now is an alarm
_SHOWN_CLASSES = 5
_SHOWN_EVENTS = 3
_EVENT_COLOURS = {"drift": "yellow", "class": "cyan"}


def sparkline(values: Sequence[float], width: int, low: float = 0.0, high: float = 1.0) -> str:
    """A small chart in one line; older values are averaged to fit, nan is a gap.

    >>> sparkline([0.0, 0.5, 1.0, float("nan"), 1.0], 10)
    '▁▅█ █'
    """
    step = max(1, math.ceil(len(values) / width))
    groups = [values[begin : begin + step] for begin in range(0, len(values), step)]
    line = ""
    for group in groups:
        known = [value for value in group if not math.isnan(value)]
        if not known:
            line += " "
            continue
        part = (sum(known) / len(known) - low) / max(high - low, 1e-12)
        line += _BARS[min(len(_BARS) - 1, max(0, int(part * len(_BARS))))]
    return line


class StreamPanel:
    """Draws a race while it runs; does nothing where standard error is no terminal.

    Parameters
    ----------
    stream : RowStream
        Tells how far it has come.
    """

    def __init__(self, stream: RowStream) -> None:
        self._stream = stream
        self._live = Live(console=talk_console(), auto_refresh=False) if sys.stderr.isatty() else None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def update(self, evaluator: PrequentialEvaluator, *, final: bool = False) -> None:
        """Draw, unless it was just done.

        The picture is a courtesy: whatever goes wrong in drawing ends the panel, never the run.
        """
        now = time.perf_counter()
        if self._live is None or not (final or now - self._drawn > _EVERY):
            return
        self._drawn = now
        try:
            self._live.update(self._picture(evaluator), refresh=True)
        except Exception as error:  # noqa: BLE001  the run is worth more than its picture
            self._stop()
            talk(f"the panel ends, the run goes on: {type(error).__name__}: {error}")

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(Exception):
                live.stop()

    def _picture(self, evaluator: PrequentialEvaluator) -> Panel:
        console = talk_console()
        width = min(console.width - _ROOM, _WIDEST)
        inner = width - 4  # a frame and a blank on both sides
        parts: list[ConsoleRenderable] = [
            self._progress(evaluator, inner),
            Text(),
            _measures(evaluator, inner, self._stream.drifts),
            Text(),
            _outcome(evaluator, inner),
            *_events(evaluator, inner),
        ]
        title = Text(_cut(visible(self._stream.name), inner - 2), style="bold")
        return Panel(Group(*parts), title=title, title_align="left", width=width)

    def _progress(self, evaluator: PrequentialEvaluator, width: int) -> Table:
        seconds = time.perf_counter() - evaluator.started
        rate = evaluator.n_rows / max(seconds, 1e-9)
        fraction = self._stream.fraction_read()
        left = "" if not fraction else f" · {_clock(seconds * (1 - fraction) / fraction)} left"
        figures = f"{evaluator.n_rows:,} rows · {rate:,.0f} rows/s · {_clock(seconds)}{left}"
        quantizer = Table.grid(expand=True, padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=fraction or 0.0, pulse=fraction is None)
        if len(figures) + 12 > width:  # a line for each where there is no room beside each other
            quantizer.add_column()
            quantizer.add_row(bar)
            if len(figures) > width:  # what is left tells more than what is over
                figures = f"{evaluator.n_rows:,} rows · {rate:,.0f} rows/s{left or ' · ' + _clock(seconds)}"
            quantizer.add_row(Text(figures, no_wrap=True, overflow="ellipsis"))
            return quantizer
        quantizer.add_column(ratio=1)
        quantizer.add_column(justify="right", no_wrap=True)
        quantizer.add_row(bar, figures)
        return quantizer


def _measures(evaluator: PrequentialEvaluator, width: int, known_drifts: Sequence[tuple[int, int]]) -> Table:
    """A line for each model with its leading measure, marks where drifts were, and the share of a class."""
    many = evaluator.positive is None and len(evaluator.labels) > 2
    measure, title = ("macro_recall", "mean recall") if many else ("g_mean", "G-mean")
    names = min(_LONGEST_NAME, 3 * width // 10)
    chart = max(5, width - names - 15)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", width=names, no_wrap=True, overflow="ellipsis")
    table.add_column(_cut(f"{title}, last {evaluator.window:,} rows", chart), width=chart, no_wrap=True)
    table.add_column("now", justify="right", width=5, no_wrap=True)
    table.add_column("all", justify="right", width=5, no_wrap=True)
    rows: list[int] = []
    for candidate, colour in zip(evaluator.candidates, _COLOURS * 9, strict=False):
        values = candidate.tracker.window_measures(evaluator.positive_code)[measure].tolist()
        name = Text(visible(candidate.name), style=colour)
        overall = float(candidate.tracker.total(evaluator.positive_code).get(measure, math.nan))
        if not values:
            table.add_row(name, Text("not yet", style="dim"), "", _number(overall))
            continue
        alarm = values[-1] < overall - _FALL
        now = Text(_number(values[-1]), style="bold red" if alarm else "")
        table.add_row(name, Text(sparkline(values, chart), style=colour), now, _number(overall))
        rows = [record.row for record in candidate.tracker.records]
    drifts = [event.row for event in evaluator.events if event.kind == "drift"]
    marks = _marks([*drifts, *(begin for begin, _ in known_drifts)], rows, chart)
    if marks.strip():
        table.add_row(Text("drift", style="yellow"), Text(marks, style="yellow"), "", "")
    shares = _shares(evaluator)
    if shares:
        line = Text(sparkline(shares, chart, 0.0, max(*shares, 0.01)), style="white")
        label = (
            "rarest class" if evaluator.positive is None else f"share of {visible(str(evaluator.positive))}"
        )
        table.add_row(Text(label, style="dim"), line, f"{shares[-1]:.1%}"[:5], "")
    return table


def _marks(drifts: Sequence[int], rows: Sequence[int], width: int) -> str:
    """Where drifts stand below a sparkline of values taken at these rows.

    >>> _marks([25], [10, 20, 30, 40], 4)
    '  ▲ '
    """
    step = max(1, math.ceil(len(rows) / width))
    marks = [" "] * math.ceil(len(rows) / step)
    for drift in drifts:
        place = bisect_left(rows, drift)
        if place < len(rows):
            marks[place // step] = "▲"
    return "".join(marks)


def _shares(evaluator: PrequentialEvaluator) -> list[float]:
    code, shares = evaluator.positive_code, []
    for record in evaluator.candidates[0].tracker.records:
        rows = record.blocks[:, 1].sum(axis=0)
        rare = rows[code] if code is not None and code < len(rows) else rows[rows > 0].min(initial=0)
        shares.append(float(rare / max(rows.sum(), 1)))
    return shares


def _outcome(evaluator: PrequentialEvaluator, width: int) -> Table:
    """Of the first model: what of the positive class was found, or the recall of the largest classes."""
    first, labels = evaluator.candidates[0], evaluator.label_table.labels
    counts, code = first.tracker.counter.confusion, evaluator.positive_code
    table = Table.grid(padding=(0, 1))
    if code is not None and code < len(counts):
        positive = visible(str(labels[code]))
        hits, rows, alarms = int(counts[code, code]), int(counts[code].sum()), int(counts[:, code].sum())
        table.add_row(Text(f"positive class: {positive}", style="bold", no_wrap=True, overflow="ellipsis"))
        table.add_row(Text(f"{visible(first.name)}: found {hits:,} of {rows:,}", overflow="ellipsis"))
        table.add_row(Text(f"{alarms - hits:,} of {alarms:,} alarms were false", overflow="ellipsis"))
        return table
    if not len(counts):
        return table
    rows = counts.sum(axis=1)
    largest = sorted(range(len(counts)), key=lambda other: -int(rows[other]))[:_SHOWN_CLASSES]
    table.add_row(Text(f"{visible(first.name)}: recall of the largest classes", style="dim"), "", "")
    for other in largest:
        share = counts[other, other] / rows[other] if rows[other] else math.nan
        label = Text(_cut(visible(str(labels[other])), width - 20), no_wrap=True)
        table.add_row(label, _number(float(share)), f"{int(rows[other]):,}")
    if len(counts) > len(largest):
        table.add_row(Text(f"and {len(counts) - len(largest)} more classes", style="dim"), "", "")
    return table


def _events(evaluator: PrequentialEvaluator, width: int) -> list[Text]:
    """The last things that happened, newest last."""
    lines = [
        Text(
            _cut(
                f"{event.row:>9,}  {visible(event.model) + ': ' if event.model else ''}{visible(event.text)}",
                width,
            ),
            style=_EVENT_COLOURS.get(event.kind, ""),
        )
        for event in evaluator.events[-_SHOWN_EVENTS:]
    ]
    return [Text(), *lines] if lines else []


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
