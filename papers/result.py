"""Results of experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

__all__ = ["Aim", "Picture", "Report", "Result", "Row", "Series", "paragraphs"]

Aim = Literal["high", "low", "one"]


@dataclass(frozen=True)
class Row:
    """One number of a table, published and computed.

    Attributes
    ----------
    subject : str
        Dataset, ratio or number of classes of the measurement.
    learner : str
        Name of the learner.
    measure : str
        The name of the measure.
    mean, std : float
        Mean and standard deviation of our values over the rounds. `std` is 0 for a single round.
    rounds : int
        Number of rounds.
    paper, paper_std : float or None
        Published mean and standard deviation, used for the verdict only.
    aim : {"high", "low", "one"}
        Direction of improvement; "one": closer to 1 is better.
    tolerance : float
        Differences up to this count as reached, in the unit of the measure.
    timed : bool
        Whether the measure is a duration, which differs between runs.
    digits : int
        Number of decimals. Tiny numbers are shown in scientific notation.
    """

    subject: str
    learner: str
    measure: str
    mean: float
    std: float = 0.0
    rounds: int = 1
    paper: float | None = None
    paper_std: float | None = None
    aim: Aim = "high"
    tolerance: float = 0.0
    timed: bool = False
    digits: int = 3

    @classmethod
    def of(cls, subject: str, learner: str, measure: str, values: Iterable[float], **rest: Any) -> Row:
        """Return a row from the values of all rounds."""
        numbers = np.array(list(values), dtype=np.float64)
        spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
        mean = float(np.mean(numbers)) if len(numbers) else float("nan")
        return cls(subject, learner, measure, mean, spread, len(numbers), **rest)

    def renamed(self, *, subject: str, measure: str) -> Row:
        """Return the same numbers under other names."""
        return replace(self, subject=subject, measure=measure)


@dataclass(frozen=True)
class Series:
    """One curve of a figure. Its points are also written to a CSV file."""

    figure: str
    panel: str
    label: str
    x: Sequence[float]
    y: Sequence[float]
    std: Sequence[float] | None = None
    timed: bool = False  # whether the values are durations, as in Row


@dataclass(frozen=True)
class Picture:
    """A figure of a paper. `draw` fills an empty matplotlib Figure."""

    name: str  # becomes the file name
    caption: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (8.0, 4.5)  # inches


@dataclass(frozen=True)
class Result:
    """Rows, curves and pictures of one experiment.

    Attributes
    ----------
    rows : sequence of Row
        The table.
    notes : sequence of str
        Differences from the paper and their reasons; one paragraph each.
    series : sequence of Series
        Curves of the pictures.
    pictures : sequence of Picture
        Figures to draw.
    layout : {"long", "wide"}
        Layout of the table: a line for each number, or a line for each subject and learner with the
        measures side by side.
    """

    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()
    series: Sequence[Series] = ()
    pictures: Sequence[Picture] = ()
    layout: Literal["long", "wide"] = "long"


@dataclass(frozen=True)
class Report:
    """A result with the conditions of its run."""

    name: str
    paper: str
    title: str
    result: Result
    unavailable: Sequence[str]  # messages about missing datasets
    seconds: float  # time of all work, including cached cells
    seed: int
    quick: bool
    version: str
    saved_seconds: float = 0.0  # the part of `seconds` that cached cells took when they were computed
    commit: str = ""  # commit of the code, or "" outside of a repository


def paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a text, which are separated by empty lines."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())
