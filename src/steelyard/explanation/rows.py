"""Explanations of predictions: contributions of the columns, nearest rows and changes, for each row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard._concurrency import shallow_copy
from steelyard._labels import winners
from steelyard._types import FloatArray
from steelyard.explanation.neighbors import Change, NearRow, find_changes, find_nearest

if TYPE_CHECKING:
    from steelyard.base import BatchLearner

_MAX_COLUMNS = 10  # maximum number of columns shown in text, table and plot
_MAX_TEXT_ROWS = 5
_MAX_ROWS_WITH_CHANGES = 20
_BAR_PIXELS = 110  # width of the longest bar in HTML
_POSITIVE, _NEGATIVE, _NEUTRAL = "#b5432e", "#1f5a92", "#8a8f98"


@dataclass(frozen=True, repr=False)
class RowExplanations:
    """Explanations of predictions, one for each row of ``explain(X)``.

    The contributions of a row and the base add up to its score:
    ``contributions.sum(axis=1) + base == score``. ``explanations[i]`` selects row ``i``. The object prints as
    text, is shown as a table in a notebook, and :meth:`plot` draws a row as a waterfall chart. All three show
    the score of the predicted class, which for the first of two classes is the negative of ``score``.

    Attributes
    ----------
    contributions : ndarray of shape (n_rows, n_columns) or (n_rows, n_columns, n_classes)
        Contribution of each column to the score of each row; with more than two classes, to the score of
        each class.
    base : float or ndarray of shape (n_classes,)
        Score of the reference that rows are compared with, approximately an average row.
    score : ndarray of shape (n_rows,) or (n_rows, n_classes)
        The scores that ``decision_function`` returns.
    column_names : list of str
        Names of the columns.
    values : ndarray of shape (n_rows, n_columns)
        Values of the rows.
    classes : ndarray of shape (n_classes,)
        Labels of the classes. With two classes, positive contributions support the second one.
    labels : ndarray of shape (n_rows,)
        Predicted classes.
    nearest : list of list of NearRow
        For each row, the three nearest remembered rows of each class, nearest first. Empty if the model
        remembers no rows.
    changes : list of list of Change
        For each row, small changes with which the model would predict another class, the smallest first.
        By default they are computed if there are at most 20 rows.
    """

    contributions: FloatArray
    base: Any
    score: FloatArray
    column_names: list[str]
    values: NDArray[Any]
    classes: NDArray[Any]
    labels: NDArray[Any]
    nearest: list[list[NearRow]] = field(default_factory=list)
    changes: list[list[Change]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: int | slice) -> RowExplanations:
        chosen = slice(rows, rows + 1 or None) if isinstance(rows, (int, np.integer)) else rows
        if isinstance(rows, (int, np.integer)) and not -len(self) <= rows < len(self):
            raise IndexError(f"row {rows} is out of range for {len(self)} explained rows")
        parts = {
            name: getattr(self, name)[chosen]
            for name in ("contributions", "score", "values", "labels", "nearest", "changes")
        }
        return replace(self, **parts)

    @property
    def feature_importances(self) -> FloatArray:
        """Mean absolute contribution of each column, over all rows and classes."""
        return mean_sizes(self.contributions)

    def support(self, row: int) -> FloatArray:
        """Return the contribution of each column of a row to the score of the predicted class."""
        return self.of_class(row)[0]

    def of_class(self, row: int, label: Any = None) -> tuple[FloatArray, float, float, Any]:
        """Return contributions, base, score and label for a class, by default for the predicted class.

        With two classes, the score of the first class is the negative of that of the second class.
        """
        if label is None:
            k = int(winners(self.score[row : row + 1], len(self.classes))[0])
        else:
            k = self.classes.tolist().index(label)
        if self.contributions.ndim == 2:
            sign = 1.0 if k or len(self.classes) < 2 else -1.0
            score = sign * float(self.score[row])
            return sign * self.contributions[row], sign * float(self.base), score, self.classes[k]
        return self.contributions[row][:, k], float(self.base[k]), float(self.score[row, k]), self.classes[k]

    def largest(
        self, row: int, n_columns: int = _MAX_COLUMNS, label: Any = None
    ) -> list[tuple[str, Any, float]]:
        """Return name, value and contribution of the columns with the largest contributions to a row.

        The contributions are to the score of the class ``label``, by default the predicted class.
        """
        contributions = self.of_class(row, label)[0]
        order = np.argsort(-np.abs(contributions), kind="stable")[:n_columns]
        return [(self.column_names[c], self.values[row, c], float(contributions[c])) for c in order.tolist()]

    def _shown(self, row: int, n_columns: int = _MAX_COLUMNS) -> list[tuple[str, float]]:
        """Return text and contribution of the most important columns, and one entry for the other columns."""
        largest = self.largest(row, n_columns)
        shown = [(f"{name} = {value_text(value)}", size) for name, value, size in largest]
        n_others = len(self.column_names) - len(shown)
        if n_others:
            rest = float(self.of_class(row)[0].sum()) - sum(size for _, size in shown)
            shown.append((f"{n_others} other column{'s' * (n_others > 1)}", rest))
        return shown

    # -- text representation ------------------------------------------------------------------------

    def summary(self, row: int, n_columns: int = 3, label: Any = None) -> str:
        """Return one line with the columns that contribute most to a row.

        The contributions are to the score of the class ``label``, by default the predicted class.
        """
        return ", ".join(
            f"{name} = {value_text(value)} ({size:+.3g})"
            for name, value, size in self.largest(row, n_columns, label)
        )

    def __str__(self) -> str:
        texts = []
        for row in range(min(len(self), _MAX_TEXT_ROWS)):
            _, base, score, _ = self.of_class(row)
            lines = [("base", base), *self._shown(row), ("score", score)]
            width = max(len(text) for text, _ in lines)
            form = _number_format([size for _, size in lines], 3)
            table = [f"  {text:<{width}}  {format(size, form):>9}" for text, size in lines]
            texts.append("\n".join([self._headline(row), *table, *self._notes(row)]))
        if len(self) > _MAX_TEXT_ROWS:
            texts.append(f"... and {len(self) - _MAX_TEXT_ROWS} more rows.")
        return "\n\n".join(texts)

    __repr__ = __str__

    def _headline(self, row: int) -> str:
        _, _, score, label = self.of_class(row)
        return f"Row {row}: predicted {_label(label)}, score {score:.3g}"

    def _notes(self, row: int) -> list[str]:
        """Return sentences about changes of a row and about its nearest rows."""
        notes = []
        now = dict(zip(self.column_names, self.values[row], strict=True))
        for change in self.changes[row] if self.changes else ():
            parts = [
                f"{name} = {value_text(new)} (now {value_text(now[name])})"
                for name, new in change.values.items()
            ]
            notes.append(f"The prediction would be {_label(change.label)} with {' and '.join(parts)}.")
        by_class: dict[str, list[str]] = {}
        for near in self.nearest[row] if self.nearest else ():
            number = "" if near.number is None else f"row {near.number} "
            by_class.setdefault(_label(near.label), []).append(f"{number}({near.distance:.2f})")
        if by_class:
            text = "; ".join(f"{label}: {', '.join(rows)}" for label, rows in by_class.items())
            notes.append(f"Nearest remembered rows (distance): {text}.")
        return notes

    # -- HTML representation ------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        parts = [self.row_html(row) for row in range(min(len(self), _MAX_TEXT_ROWS))]
        if len(self) > _MAX_TEXT_ROWS:
            parts.append(f"<p>... and {len(self) - _MAX_TEXT_ROWS} more rows.</p>")
        return "".join(parts)

    def row_html(self, row: int, n_columns: int = _MAX_COLUMNS) -> str:
        """Return the explanation of one row as HTML, with a bar for each contribution."""
        _, base, score, _ = self.of_class(row)
        shown = self._shown(row, n_columns)
        longest = max((abs(size) for _, size in shown), default=0.0) or 1.0
        form = _number_format([base, score, *(size for _, size in shown)], 3)
        lines = "".join(_html_line(text, size, longest, form) for text, size in shown)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes(row))
        return (
            f'<div class="explanation"><p><strong>{escape(self._headline(row))}</strong></p>'
            f'<table style="border-collapse:collapse">{_html_line("base", base, 0.0, form)}{lines}'
            f"{_html_line('score', score, 0.0, form)}</table>{f'<ul>{notes}</ul>' if notes else ''}</div>"
        )

    # -- plot --------------------------------------------------------------------------------------------

    def plot(self, row: int = 0, *, n_columns: int = _MAX_COLUMNS, ax: Any = None) -> Any:
        """Draw the contributions of a row as a waterfall plot from the base to the score.

        Parameters
        ----------
        row : int, default=0
            The row.
        n_columns : int, default=10
            Columns to draw; the others are drawn as one bar.
        ax : matplotlib axes, optional
            The axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib axes
        """
        row = range(len(self))[row]
        _, base, score, label = self.of_class(row)
        shown = self._shown(row, n_columns)
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(7.0, 1.4 + 0.36 * len(shown)), layout="constrained")
        ends = base + np.cumsum([size for _, size in shown])
        starts = np.concatenate([[base], ends[:-1]])
        sizes = ends - starts
        places = np.arange(len(shown))
        colors = [_POSITIVE if size > 0.0 else _NEGATIVE for size in sizes]
        ax.barh(places, sizes, left=starts, color=colors, height=0.62)
        # Thin lines connect the end of each bar with the beginning of the next one.
        ax.vlines(ends[:-1], places[:-1], places[1:], color=_NEUTRAL, linewidth=0.8)
        reach = float(np.ptp([*ends, base])) or 1.0
        form = _number_format([base, score, *sizes.tolist()], 2)
        for place, size, end in zip(places, sizes, ends, strict=True):
            ax.text(
                end + (0.015 if size > 0.0 else -0.015) * reach, place, format(size, form),
                va="center", ha="left" if size > 0.0 else "right", fontsize="small",
            )  # fmt: skip
        plain = form.removeprefix("+")
        for at, text in ((base, f"base {base:{plain}}"), (score, f"score {score:{plain}}")):
            ax.axvline(at, color=_NEUTRAL, linewidth=0.8, linestyle=":")
            is_base = text.startswith("base")
            ax.text(
                at, -0.75 if is_base else len(shown) - 0.3, text,
                ha="center", va="bottom" if is_base else "top", fontsize="small", color="#444",
                bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 1.0},
            )  # fmt: skip
        ax.set_ylim(len(shown) + 0.15, -1.15)
        low, high = min([*ends, base]), max([*ends, base])
        ax.set_xlim(low - 0.14 * reach, high + 0.14 * reach)
        ax.set_yticks(places, [text for text, _ in shown])
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlabel(f"score for {_label(label)}")
        ax.set_title(f"row {row}: predicted {_label(label)}", fontsize="medium")
        return ax

    # -- conversion to plain values -----------------------------------------------------------------

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain values per row, for JSON, with contributions by column name."""
        return [self._row_dict(row) for row in range(len(self))]

    def _row_dict(self, row: int) -> dict[str, Any]:
        def by_column(values: Iterable[Any]) -> dict[str, Any]:
            return dict(zip(self.column_names, values, strict=True))

        contributions, base, score = self.contributions[row], self.base, self.score[row]
        plain: dict[str, Any] = {"label": _plain(self.labels[row])}
        if contributions.ndim == 1:
            # A positive score is in favour of this class.
            plain |= {"score": float(score), "score_class": _plain(self.classes[-1]), "base": float(base)}
            plain["contributions"] = by_column(contributions.tolist())
        else:
            names = [str(_plain(label)) for label in self.classes]
            plain["score"] = dict(zip(names, score.tolist(), strict=True))
            plain["base"] = dict(zip(names, base.tolist(), strict=True))
            parts = zip(names, contributions.T, strict=True)
            plain["contributions"] = {name: by_column(part.tolist()) for name, part in parts}
        if self.nearest:
            plain["nearest"] = [
                {"label": _plain(near.label), "distance": near.distance, "number": near.number}
                | ({} if near.values is None else {"values": by_column(map(_plain, near.values))})
                for near in self.nearest[row]
            ]
        if self.changes:
            plain["changes"] = [
                {"label": _plain(change.label), "values": {k: _plain(v) for k, v in change.values.items()}}
                for change in self.changes[row]
            ]
        return plain


def explain_rows(
    learner: BatchLearner, X: Any, background: Any = None, changes: bool | None = None
) -> RowExplanations:
    """Explain the predictions of rows; see :meth:`steelyard.base.BatchLearner.explain`."""
    rows = learner._explained_rows(X)
    names = learner._explained_names(rows.shape[1])
    others = None if background is None else learner._explained_rows(background)
    plain = shallow_copy(learner)  # the rows are already validated, so column names are not checked again
    plain.__dict__.pop("feature_names_in_", None)
    scores, classes = plain._explained_scores(rows)
    remembered = plain._remembered_rows()
    if others is None and remembered is not None and remembered.has_values:
        others = remembered.X
    attribution = plain._attribution(rows, others).adjusted(scores)
    is_single = scores.shape[1] == 1
    found = RowExplanations(
        contributions=attribution.contributions[:, :, 0] if is_single else attribution.contributions,
        base=float(attribution.base[0]) if is_single else attribution.base,
        score=scores[:, 0] if is_single else scores,
        column_names=names,
        values=rows,
        classes=classes,
        labels=classes[winners(scores, len(classes))],
        nearest=find_nearest(remembered, rows),
    )
    if changes or (changes is None and len(rows) <= _MAX_ROWS_WITH_CHANGES):
        found.changes.extend(
            find_changes(values, found.support(row), remembered, plain, names)
            for row, values in enumerate(rows)
        )
    return found


def mean_contributions(learner: BatchLearner, X: Any, *, are_remembered: bool = False) -> FloatArray:
    """Return the mean absolute contribution of each column over given or remembered rows."""
    plain = shallow_copy(learner)
    plain.__dict__.pop("feature_names_in_", None)
    rows = X if are_remembered else plain._explained_rows(X)
    remembered = plain._remembered_rows()
    others = None if remembered is None or not remembered.has_values else remembered.X
    return mean_sizes(plain._attribution(rows, others).contributions)


def mean_sizes(contributions: FloatArray) -> FloatArray:
    """Return the mean absolute contribution of each column."""
    sizes = np.abs(contributions).mean(axis=0)
    return np.asarray(sizes if sizes.ndim == 1 else sizes.mean(axis=1))


def value_text(value: Any) -> str:
    """Return a table value as short text."""
    if value is None:
        return "missing"
    if not isinstance(value, (float, np.floating)):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return "missing"
    # Amounts and counts are shown without an exponent.
    return f"{number:.0f}" if 1e3 <= abs(number) < 1e12 else f"{number:.4g}"


def _number_format(numbers: list[float], n_decimals: int) -> str:
    """Return the format of the numbers of a row: more decimals if all of them are small."""
    largest = max(map(abs, numbers))
    if not 0.0 < largest < 0.1:
        return f"+.{n_decimals}f"
    if largest < 1e-4:
        return f"+.{n_decimals - 1}e"
    return f"+.{n_decimals - 1 - floor(log10(largest))}f"


def _label(label: Any) -> str:
    return repr(_plain(label))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _html_line(text: str, size: float, longest: float, form: str) -> str:
    bar = ""
    if longest > 0.0:
        width = round(_BAR_PIXELS * abs(size) / longest)
        color = _POSITIVE if size > 0.0 else _NEGATIVE
        edge = _BAR_PIXELS if size > 0.0 else _BAR_PIXELS - width
        bar = (
            f'<div style="width:{2 * _BAR_PIXELS}px;height:0.8em"><div style="margin-left:{edge}px;'
            f'width:{width}px;height:0.8em;background:{color};border-radius:1px"></div></div>'
        )
    return (
        f'<tr><td style="padding:1px 10px 1px 0;text-align:left">{escape(text)}</td>'
        f'<td style="padding:1px 10px 1px 0;text-align:right;font-variant-numeric:tabular-nums">{size:{form}}'
        f'</td><td style="padding:1px 0">{bar}</td></tr>'
    )
