"""Pictures in scikit-learn's manner: made from a result or an estimator, drawn with matplotlib."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation.results import PrequentialResult

__all__ = ["BoundaryDisplay", "ForgetDisplay", "PrequentialDisplay"]


class Display(ABC):
    """A picture that can be drawn into axes that are there, or into a figure of its own."""

    ax_: Any
    figure_: Any

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw into these axes."""

    def plot(self, *, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        self.ax_, self.figure_ = _axes(ax)
        self._draw(self.ax_)
        return self


class PrequentialDisplay(Display):
    """A measure over time, one line a model, with its 95 % band.

    Parameters
    ----------
    rows : dict of str to list of int
        Where the measure was taken, by model.
    values, low, high : dict of str to ndarray
        The measure and the ends of its band.
    measure : str
        Its name.
    drifts : list of int
        Rows at which the concept is known to change.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where it was drawn.
    lines_ : list of matplotlib lines
        One for each model.

    Examples
    --------
    >>> from steelyard import ProximalSVC
    >>> from steelyard.evaluation import PrequentialDisplay, prequential
    >>> from steelyard.streams import Gaussians
    >>> result = prequential(ProximalSVC(), Gaussians(4000))
    >>> display = PrequentialDisplay.from_result(result, "sensitivity")
    >>> display.ax_.get_ylabel()
    'sensitivity'
    """

    def __init__(
        self,
        rows: dict[str, list[int]],
        values: dict[str, FloatArray],
        *,
        low: dict[str, FloatArray],
        high: dict[str, FloatArray],
        measure: str,
        drifts: list[int],
    ) -> None:
        self.rows, self.values, self.low, self.high = rows, values, low, high
        self.measure, self.drifts = measure, drifts

    @classmethod
    def from_result(cls, result: PrequentialResult, measure: str | None = None, *, ax: Any = None) -> Self:
        """Draw a measure of a result.

        Parameters
        ----------
        result : PrequentialResult
            What was measured.
        measure : str, optional
            One of ``result.metrics``; ``result.leading`` by default.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        PrequentialDisplay
        """
        measure = measure or result.leading
        if measure not in result.metrics:
            raise ParameterError(
                f"measure must be one of {', '.join(result.metrics)}; got {measure!r}.",
                source="PrequentialDisplay",
            )
        lines = {model: result.records(model) for model in result.models}

        def column(name: str) -> dict[str, FloatArray]:
            return {
                model: np.array([line.get(name, np.nan) for line in lines[model]], dtype=np.float64)
                for model in lines
            }

        return cls(
            {model: [line["row"] for line in records] for model, records in lines.items()},
            column(measure),
            low=column(f"{measure}_low"),
            high=column(f"{measure}_high"),
            measure=measure,
            drifts=[begin for begin, _ in result.known_drifts],
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        self.lines_ = []
        for model, rows in self.rows.items():
            (line,) = ax.plot(rows, self.values[model], label=model)
            ax.fill_between(rows, self.low[model], self.high[model], color=line.get_color(), alpha=0.15)
            self.lines_.append(line)
        for row in self.drifts:
            ax.axvline(row, color="gray", linestyle=":", linewidth=1)
        ax.set(xlabel="rows", ylabel=self.measure)
        ax.legend()


class BoundaryDisplay(Display):
    """The regions that a classifier of two features makes, and its boundaries.

    Parameters
    ----------
    xx, yy : ndarray of shape (n, n)
        A grid over both features.
    response : ndarray of shape (n, n)
        The number of the class at each point.
    classes : list
        The classes.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.evaluation import BoundaryDisplay
    >>> X, y = np.array([[0.0, 0.0], [1.0, 1.0], [0.2, 0.1], [0.9, 1.2]]), [0, 1, 0, 1]
    >>> display = BoundaryDisplay.from_estimator(ProximalSVC().fit(X, y), X, y)
    >>> sorted(set(display.response.ravel().tolist()))
    [0, 1]
    """

    def __init__(
        self, xx: FloatArray, yy: FloatArray, response: np.ndarray[Any, Any], classes: list[Any]
    ) -> None:
        self.xx, self.yy, self.response, self.classes = xx, yy, response, classes

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        resolution: int = 200,
        ax: Any = None,
    ) -> Self:
        """Draw a fitted classifier over the range of some rows.

        Parameters
        ----------
        estimator : classifier
            A fitted one, of two features.
        X : array-like of shape (n_samples, 2)
            Rows that say how far to draw.
        y : array-like of shape (n_samples,), optional
            Their labels; with them the rows are drawn too.
        resolution : int, default=200
            Points of the grid in each direction.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        BoundaryDisplay
        """
        rows = _two_features(X, "BoundaryDisplay")
        display = cls._over(rows, estimator, resolution)
        display.plot(ax=ax)
        if y is not None:
            _scatter(display.ax_, rows, np.asarray(y), display.classes)
        return display

    @classmethod
    def _over(cls, rows: FloatArray, estimator: Any, resolution: int) -> Self:
        """What a classifier says all around some rows."""
        xx, yy = _grid(rows, resolution)
        labels = np.asarray(estimator.predict(np.column_stack([xx.ravel(), yy.ravel()])))
        response = np.searchsorted(estimator.classes_, labels).reshape(xx.shape)
        return cls(xx, yy, response, np.asarray(estimator.classes_).tolist())

    def _draw(self, ax: Any) -> None:
        if len(self.classes) > 1:
            levels = np.arange(len(self.classes) + 1) - 0.5
            ax.contourf(self.xx, self.yy, self.response, levels=levels, cmap="coolwarm", alpha=0.25)
        self.draw_lines(ax, linewidths=1)

    def draw_lines(self, ax: Any, **style: Any) -> None:
        """Draw the lines between the regions.

        Parameters
        ----------
        ax : matplotlib axes
            Where to draw.
        **style : dict
            How, as ``contour`` takes it.
        """
        if len(self.classes) > 1:
            levels = np.arange(1, len(self.classes)) - 0.5
            ax.contour(self.xx, self.yy, self.response, levels=levels, colors="black", **style)


class ForgetDisplay(Display):
    """How a boundary moves when rows are forgotten: dashed before, solid after.

    Parameters
    ----------
    before, after : BoundaryDisplay
        The classifier with and without the rows.
    forgotten : ndarray of shape (n_forgotten, 2)
        The rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where it was drawn.
    estimator_ : classifier
        A copy of the classifier that has forgotten the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> from steelyard.evaluation import ForgetDisplay
    >>> X, y = np.array([[0.0, 0.0], [1.0, 1.0], [0.2, 0.1], [0.9, 1.2], [0.1, 1.5]]), [0, 1, 0, 1, 0]
    >>> model = ProximalSVC().fit(X, y)
    >>> display = ForgetDisplay.from_estimator(model, X, y, [4])
    >>> display.estimator_.class_count_.tolist(), model.class_count_.tolist()
    ([2.0, 2.0], [3.0, 2.0])
    """

    estimator_: Any

    def __init__(self, before: BoundaryDisplay, after: BoundaryDisplay, forgotten: FloatArray) -> None:
        self.before, self.after, self.forgotten = before, after, forgotten

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        forget: ArrayLike,
        *,
        resolution: int = 200,
        ax: Any = None,
    ) -> Self:
        """Forget some of the rows that a classifier has learned, in a copy of it, and draw both.

        Parameters
        ----------
        estimator : classifier
            A fitted one of two features that can forget; it is left as it is.
        X : array-like of shape (n_samples, 2)
            Rows that it has learned.
        y : array-like of shape (n_samples,)
            Their labels.
        forget : array-like of int or bool
            Which of the rows to forget.
        resolution : int, default=200
            Points of the grid in each direction.
        ax : matplotlib axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ForgetDisplay
        """
        if not hasattr(estimator, "forget"):
            raise ParameterError(f"{type(estimator).__name__} cannot forget rows.", source="ForgetDisplay")
        rows, labels, chosen = _two_features(X, "ForgetDisplay"), np.asarray(y), np.asarray(forget)
        without = deepcopy(estimator)
        without.forget(rows[chosen], labels[chosen])
        before, after = (BoundaryDisplay._over(rows, each, resolution) for each in (estimator, without))
        display = cls(before, after, rows[chosen])
        display.estimator_ = without
        display.plot(ax=ax)
        _scatter(display.ax_, rows, labels, before.classes)
        return display

    def _draw(self, ax: Any) -> None:
        for display, style in ((self.before, "dashed"), (self.after, "solid")):
            display.draw_lines(ax, linewidths=1.2, linestyles=style)
        ax.scatter(*self.forgotten.T, s=90, facecolors="none", edgecolors="black", label="forgotten")


def _axes(ax: Any) -> tuple[Any, Any]:
    if ax is not None:
        return ax, ax.figure
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ParameterError(
            "pictures need matplotlib.", source="display", hint='pip install "steelyard[plots]"'
        ) from error
    figure, made = plt.subplots()
    return made, figure


def _two_features(X: ArrayLike, source: str) -> FloatArray:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows):
        raise DataError(f"expected rows of two features; got shape {rows.shape}.", source=source)
    return rows


def _grid(rows: FloatArray, resolution: int) -> tuple[FloatArray, FloatArray]:
    low, high = rows.min(axis=0), rows.max(axis=0)
    margin = 0.1 * np.where(high > low, high - low, 1.0)
    sides = [np.linspace(a, b, resolution) for a, b in zip(low - margin, high + margin, strict=True)]
    xx, yy = np.meshgrid(*sides)
    return xx, yy


def _scatter(ax: Any, rows: FloatArray, labels: np.ndarray[Any, Any], classes: list[Any]) -> None:
    for label in classes:
        ax.scatter(*rows[labels == label].T, s=14, label=str(label))
    ax.legend()
