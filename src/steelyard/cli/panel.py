"""The live panel of ``steelyard stream``: progress, measures and class share as they come."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from steelyard._visible import visible
from steelyard.cli.output import talk, talk_console

if TYPE_CHECKING:
    from steelyard.evaluation import Race
    from steelyard.streams import RowStream

__all__ = ["StreamPanel", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_EVERY = 0.2  # seconds between two drawings


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

    def update(self, race: Race, *, final: bool = False) -> None:
        """Draw, unless it was just done.

        The picture is a courtesy: whatever goes wrong in drawing ends the panel, never the run.
        """
        now = time.perf_counter()
        if self._live is None or not (final or now - self._drawn > _EVERY):
            return
        self._drawn = now
        try:
            self._live.update(self._picture(race), refresh=True)
        except Exception as error:  # noqa: BLE001  the run is worth more than its picture
            self._stop()
            talk(f"the panel ends, the run goes on: {type(error).__name__}: {error}")

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(Exception):
                live.stop()

    def _picture(self, race: Race) -> Panel:
        console = talk_console()
        width = max(20, min(console.width, 110) - 46)
        return Panel(
            Group(self._progress(race), Text(), _measures(race, width), Text(), _confusion(race)),
            title=Text(visible(self._stream.name), style="bold"),
            title_align="left",
            width=min(console.width, 110),
        )

    def _progress(self, race: Race) -> Table:
        seconds = time.perf_counter() - race.started
        rate = race.n_rows / max(seconds, 1e-9)
        fraction = self._stream.fraction_read()
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        bar = ProgressBar(total=1.0, completed=fraction or 0.0, pulse=fraction is None)
        left = "" if not fraction else f" · {_clock(seconds * (1 - fraction) / fraction)} left"
        grid.add_row(bar, f"{race.n_rows:,} rows · {rate:,.0f} rows/s · {_clock(seconds)}{left}")
        return grid


def _measures(race: Race, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for header in ("", f"G-mean, last {race.window:,} rows", "now", "all"):
        table.add_column(header, justify="right" if header in {"now", "all"} else "left", no_wrap=True)
    for contender, colour in zip(race.contenders, _COLOURS * 9, strict=False):
        values = contender.tracker.window_measures(race.positive_code)["g_mean"].tolist()
        if not values:
            table.add_row(
                Text(visible(contender.name), style=colour), "waiting for the first measures", "", ""
            )
            continue
        overall = contender.tracker.total(race.positive_code)["g_mean"]
        chart = Text(sparkline(values, width), style=colour)
        table.add_row(
            Text(visible(contender.name), style=colour), chart, _number(values[-1]), _number(overall)
        )
    shares = _shares(race)
    if shares:
        name = f"share of {race.positive!r}" if race.positive is not None else "share of the rarest"
        top = max(shares)
        chart = Text(sparkline(shares, width, 0.0, max(top, 0.01)), style="white")
        table.add_row(Text(visible(name), style="dim"), chart, f"{shares[-1]:.1%}", "")
    return table


def _shares(race: Race) -> list[float]:
    code, shares = race.positive_code, []
    for record in race.contenders[0].tracker.records:
        rows = record.blocks[:, 1].sum(axis=0)
        rare = rows[code] if code is not None and code < len(rows) else rows[rows > 0].min(initial=0)
        shares.append(float(rare / max(rows.sum(), 1)))
    return shares


def _confusion(race: Race) -> Table:
    first, labels = race.contenders[0], race.label_table.labels
    counts = first.tracker.counter.confusion
    largest = sorted(range(len(counts)), key=lambda code: -int(counts[code].sum()))
    shown = sorted(largest[:5], key=labels.__getitem__)
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(Text(visible(f"{first.name}: true, then predicted")), style="dim", no_wrap=True)
    for code in shown:
        table.add_column(Text(visible(labels[code])), justify="right")
    for code in shown:
        table.add_row(Text(visible(labels[code])), *(f"{int(counts[code, other]):,}" for other in shown))
    if len(counts) > len(shown):
        table.add_row(f"and {len(counts) - len(shown)} more classes")
    return table


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
