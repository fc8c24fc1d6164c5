"""Live display of ``steelyard stream``: progress, running measures and class share."""

from __future__ import annotations

import math
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
from steelyard.cli.output import print_status, stderr_console

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams import RowStream

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_REFRESH_SECONDS = 0.2
_MAX_WIDTH = 110  # characters
_MARGIN = 2  # number of free characters at the right edge, where the terminal prints ^C
_MAX_NAME_WIDTH = 22  # characters
# Measures of ranking and probabilities, with table heading and minimum display width in characters.
_RANKING = {
    "average_precision": ("AP", 74),
    "brier": ("Brier", 74),
    "log_loss": ("logl.", 100),
    "precision_at_k": ("P@k", 114),
    "recall_at_k": ("R@k", 114),
}
_RANKING_WIDTH = 7  # column width in characters
_ALARM_DROP = 0.1  # a running measure is red if it is lower than the measure of all rows by this much
_SHOWN_CLASSES = 5
_SHOWN_EVENTS = 3
_EVENT_COLOURS = {"drift": "yellow", "class": "cyan"}


def sparkline(values: Sequence[float], width: int, low: float = 0.0, high: float = 1.0) -> str:
    """Return a one-line chart. Neighbouring values are averaged to fit, and NaN is drawn as a space.

    >>> sparkline([0.0, 0.5, 1.0, float("nan"), 1.0], 10)
    '▁▅█ █'
    """
    step = max(1, math.ceil(len(values) / width))
    line = ""
    for begin in range(0, len(values), step):
        known = [value for value in values[begin : begin + step] if not math.isnan(value)]
        if not known:
            line += " "
            continue
        height = (sum(known) / len(known) - low) / max(high - low, 1e-12)
        line += _BARS[min(len(_BARS) - 1, max(0, int(height * len(_BARS))))]
    return line


class LiveDisplay:
    """Live display of a run on standard error, which must be a terminal."""

    def __init__(self, stream: RowStream) -> None:
        self._stream = stream
        self._live: Live | None = Live(console=stderr_console(), auto_refresh=False)
        self._drawn_at = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def update(self, evaluator: PrequentialEvaluator, *, final: bool = False) -> None:
        """Redraw if the refresh interval has passed. An error while drawing ends only the display."""
        now = time.perf_counter()
        if self._live is None or not (final or now - self._drawn_at > _REFRESH_SECONDS):
            return
        self._drawn_at = now
        try:
            self._live.update(self._render(evaluator), refresh=True)
        except Exception as error:  # noqa: BLE001  the run continues without the display
            self._stop()
            print_status(f"the live display failed, the run continues: {type(error).__name__}: {error}")

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(Exception):
                live.stop()

    def _render(self, evaluator: PrequentialEvaluator) -> Panel:
        width = min(stderr_console().width - _MARGIN, _MAX_WIDTH)
        inner = width - 4  # width without the border and a blank on both sides
        parts: list[ConsoleRenderable] = [
            self._progress(evaluator, inner),
            Text(),
            _measures(evaluator, inner, self._stream.drifts),
            Text(),
            _class_results(evaluator, inner),
            *_events(evaluator, self._stream.feature_names or (), inner),
        ]
        title = Text(_truncate(visible(self._stream.name), inner - 2), style="bold")
        return Panel(Group(*parts), title=title, title_align="left", width=width)

    def _progress(self, evaluator: PrequentialEvaluator, width: int) -> Table:
        seconds = time.perf_counter() - evaluator.started
        rate = evaluator.n_rows / max(seconds, 1e-9)
        fraction = self._stream.fraction_read()
        counts = f"{evaluator.n_rows:,} rows · {rate:,.0f} rows/s"
        elapsed = f" · {_clock(seconds)} elapsed"
        seconds_left = seconds * (1 - fraction) / fraction if fraction else 0
        remaining = f" · {_clock(seconds_left)} left" if seconds_left else ""
        figures = f"{counts}{elapsed}{remaining}"
        bar = ProgressBar(total=1.0, completed=fraction or 0.0, pulse=fraction is None)
        table = Table.grid(expand=True, padding=(0, 1))
        if len(figures) + 12 <= width:
            table.add_column(ratio=1)
            table.add_column(justify="right", no_wrap=True)
            table.add_row(bar, figures)
            return table
        if len(figures) > width:
            figures = f"{counts}{remaining or elapsed}"
        table.add_column()
        table.add_row(bar)
        table.add_row(Text(figures, no_wrap=True, overflow="ellipsis"))
        return table


def _measures(evaluator: PrequentialEvaluator, width: int, known_drifts: Sequence[tuple[int, int]]) -> Table:
    """Return a line per model with its main measure, a line of drift marks and a line with a class share."""
    many = evaluator.positive is None and len(evaluator.labels) > 2
    measure, title = ("macro_recall", "mean recall") if many else ("g_mean", "G-mean")
    name_width = min(_MAX_NAME_WIDTH, 3 * width // 10)
    shown = [key for key, (_, minimum) in _RANKING.items() if not many and width >= minimum]
    chart_width = max(5, width - name_width - 17 - _RANKING_WIDTH * len(shown))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("model", width=name_width, no_wrap=True, overflow="ellipsis")
    heading = f"{title} of the last {evaluator.window:,} rows, over time"
    short = f"{title} over time"
    table.add_column(heading if len(heading) <= chart_width else short, width=chart_width, no_wrap=True)
    table.add_column("latest", justify="right", width=6, no_wrap=True)
    table.add_column("total", justify="right", width=6, no_wrap=True)
    for key in shown:
        table.add_column(_RANKING[key][0], justify="right", width=_RANKING_WIDTH - 1, no_wrap=True)
    rows: list[int] = []
    for candidate, colour in zip(evaluator.candidates, _COLOURS * 9, strict=False):
        values = candidate.tracker.window_measures(evaluator.positive_code)[measure].tolist()
        name = Text(visible(candidate.name), style=colour)
        totals = candidate.tracker.total(evaluator.positive_code)
        total = float(totals.get(measure, math.nan))
        ranking = [_number(totals.get(key, math.nan)) for key in shown]
        if not values:
            table.add_row(name, Text("no window is complete yet", style="dim"), "", _number(total), *ranking)
            continue
        latest = Text(_number(values[-1]), style="bold red" if values[-1] < total - _ALARM_DROP else "")
        table.add_row(
            name, Text(sparkline(values, chart_width), style=colour), latest, _number(total), *ranking
        )
        rows = [record.row for record in candidate.tracker.records]
    drifts = [event.row for event in evaluator.events if event.kind == "drift"]
    marks = _drift_marks([*drifts, *(begin for begin, _ in known_drifts)], rows, chart_width)
    if marks.strip():
        table.add_row(Text("concept drift", style="yellow"), Text(marks, style="yellow"), "", "")
    shares = _class_shares(evaluator)
    if shares:
        line = Text(sparkline(shares, chart_width, 0.0, max(*shares, 0.01)), style="white")
        positive = evaluator.positive
        label = "share of rarest class" if positive is None else f"share of {visible(str(positive))}"
        table.add_row(Text(label, style="dim"), line, f"{shares[-1]:.1%}", "")
    return table


def _drift_marks(drifts: Sequence[int], rows: Sequence[int], width: int) -> str:
    """Return a text line that marks the drifts below a sparkline of values measured at ``rows``.

    >>> _drift_marks([25], [10, 20, 30, 40], 4)
    '  ▲ '
    """
    step = max(1, math.ceil(len(rows) / width))
    marks = [" "] * math.ceil(len(rows) / step)
    for drift in drifts:
        index = bisect_left(rows, drift)
        if index < len(rows):
            marks[index // step] = "▲"
    return "".join(marks)


def _class_shares(evaluator: PrequentialEvaluator) -> list[float]:
    """Return the share of the positive class, or of the rarest class if none is positive, in every window."""
    code, shares = evaluator.positive_code, []
    for record in evaluator.candidates[0].tracker.records:
        rows = record.blocks[:, 1].sum(axis=0)
        known = code is not None and code < len(rows)
        rare = rows[code] if known else min(rows[rows > 0], default=0)
        shares.append(float(rare / max(rows.sum(), 1)))
    return shares


def _class_results(evaluator: PrequentialEvaluator, width: int) -> Table:
    """Return hits and false alarms of the first model or, without a positive class, its recall per class."""
    first, labels = evaluator.candidates[0], evaluator.label_table.labels
    counts, code, name = first.tracker.confusion, evaluator.positive_code, visible(first.name)
    table = Table.grid(padding=(0, 1))
    if code is not None and code < len(counts):
        hits, rows, alarms = int(counts[code, code]), int(counts[code].sum()), int(counts[:, code].sum())
        false = alarms - hits
        for text, style in (
            (f"positive class: {visible(str(labels[code]))}", "bold"),
            (f"{name}: found {hits:,} of {rows:,} positive rows{_percent(hits, rows)}", ""),
            (f"{name}: {false:,} of {alarms:,} alarms were false{_percent(false, alarms)}", ""),
        ):
            table.add_row(Text(_truncate(text, width), style=style, no_wrap=True))
        return table
    if not len(counts):
        return table
    rows = counts.sum(axis=1)
    largest = sorted(range(len(counts)), key=lambda k: -int(rows[k]))[:_SHOWN_CLASSES]
    heads = (f"{name}, largest classes", "recall", "rows")
    table.add_row(*(Text(head, style="dim") for head in heads))
    table.columns[1].justify = table.columns[2].justify = "right"
    for k in largest:
        recall = counts[k, k] / rows[k] if rows[k] else math.nan
        label = Text(_truncate(visible(str(labels[k])), width - 20), no_wrap=True)
        table.add_row(label, _number(float(recall)), f"{int(rows[k]):,}")
    if len(counts) > len(largest):
        table.add_row(Text(f"and {len(counts) - len(largest)} more classes", style="dim"), "", "")
    return table


def _events(evaluator: PrequentialEvaluator, feature_names: Sequence[str], width: int) -> list[Text]:
    """Return the latest events, newest last."""
    lines = []
    for event in evaluator.events[-_SHOWN_EVENTS:]:
        model = f"{visible(event.model)}: " if event.model else ""
        text = _truncate(f"row {event.row:>9,}  {model}{visible(event.described(feature_names))}", width)
        lines.append(Text(text, style=_EVENT_COLOURS.get(event.kind, "")))
    return [Text(), *lines] if lines else []


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _percent(part: int, total: int) -> str:
    return f" ({part / total:.0%})" if total else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
