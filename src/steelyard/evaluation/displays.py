"""Plots of results and estimators with matplotlib, in the style of scikit-learn's displays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation.results import PrequentialResult


class Display(ABC):
    """Base class of the displays."""

    ax_: Any
    figure_: Any

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw into the axes."""

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib axes, optional
            The axes; a new figure by default.

        Returns
        -------
        self
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ParameterError(
                    "plots need matplotlib.", source="display", hint='pip install "steelyard[plots]"'
                ) from error
            _, ax = plt.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self


@dataclass(eq=False, repr=False)
class PrequentialDisplay(Display):
    """Plot of a measure over time: one line per model with its 95 % confidence band.

    Parameters
    ----------
    rows : dict of str to list of int
        Rows at which the measure was recorded, by model.
    values, low, high : dict of str to ndarray
        The measure and its confidence band, by model.
    measure : str
        Name of the measure.
    drifts : list of int
        Rows of known concept drifts.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        The axes and the figure.
    lines_ : list of matplotlib lines
        One line per model.

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

    rows: dict[str, list[int]]
    values: dict[str, FloatArray]
    _: KW_ONLY
    low: dict[str, FloatArray]
    high: dict[str, FloatArray]
    measure: str
    drifts: list[int]

    @classmethod
    def from_result(cls, result: PrequentialResult, measure: str | None = None, *, ax: Any = None) -> Self:
        """Plot a measure of a result.

        Parameters
        ----------
        result : PrequentialResult
            The result.
        measure : str, optional
            One of ``result.metrics``; ``result.leading`` by default.
        ax : matplotlib axes, optional
            The axes; a new figure by default.

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
        values, low, high = (
            {model: np.array([x.get(name, np.nan) for x in records]) for model, records in lines.items()}
            for name in (measure, f"{measure}_low", f"{measure}_high")
        )
        rows = {model: [line["row"] for line in records] for model, records in lines.items()}
        drifts = [begin for begin, _ in result.known_drifts]
        return cls(rows, values, low=low, high=high, measure=measure, drifts=drifts).plot(ax=ax)

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


@dataclass(eq=False, repr=False)
class BoundaryDisplay(Display):
    """Plot of the decision regions and boundaries of a classifier with two features.

    Parameters
    ----------
    xx, yy : ndarray of shape (n, n)
        Grid over both features.
    response : ndarray of shape (n, n)
        Index of the predicted class at each point.
    classes : list
        The classes.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        The axes and the figure.

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

    xx: FloatArray
    yy: FloatArray
    response: np.ndarray[Any, Any]
    classes: list[Any]

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
        """Plot a fitted classifier over the range of some rows.

        Parameters
        ----------
        estimator : classifier
            A fitted classifier with two features.
        X : array-like of shape (n_samples, 2)
            Rows whose range defines the range of the plot.
        y : array-like of shape (n_samples,), optional
            Labels of the rows; if given, the rows are plotted too.
        resolution : int, default=200
            Number of grid points in each direction.
        ax : matplotlib axes, optional
            The axes; a new figure by default.

        Returns
        -------
        BoundaryDisplay
        """
        rows = _two_features(X, "BoundaryDisplay")
        display = cls._on_grid(rows, estimator, resolution).plot(ax=ax)
        if y is not None:
            _scatter(display.ax_, rows, np.asarray(y), display.classes)
        return display

    @classmethod
    def _on_grid(cls, rows: FloatArray, estimator: Any, resolution: int) -> Self:
        """Return the predictions of a classifier on a grid around some rows."""
        low, high = rows.min(axis=0), rows.max(axis=0)
        margin = 0.1 * np.where(high > low, high - low, 1.0)
        xx, yy = np.meshgrid(*np.linspace(low - margin, high + margin, resolution, axis=1))
        labels = np.asarray(estimator.predict(np.column_stack([xx.ravel(), yy.ravel()])))
        response = np.searchsorted(estimator.classes_, labels).reshape(xx.shape)
        return cls(xx, yy, response, np.asarray(estimator.classes_).tolist())

    def _draw(self, ax: Any) -> None:
        if len(self.classes) > 1:
            levels = np.arange(len(self.classes) + 1) - 0.5
            ax.contourf(self.xx, self.yy, self.response, levels=levels, cmap="coolwarm", alpha=0.25)
        self.draw_lines(ax, linewidths=1)

    def draw_lines(self, ax: Any, **style: Any) -> None:
        """Draw the boundaries between the regions.

        Parameters
        ----------
        ax : matplotlib axes
            The axes.
        **style : dict
            Options of ``contour``.
        """
        if len(self.classes) > 1:
            levels = np.arange(1, len(self.classes)) - 0.5
            ax.contour(self.xx, self.yy, self.response, levels=levels, colors="black", **style)


@dataclass(eq=False, repr=False)
class ForgetDisplay(Display):
    """Plot of the decision boundary before (dashed) and after (solid) some rows are forgotten.

    Parameters
    ----------
    before, after : BoundaryDisplay
        The classifier before and after forgetting.
    forgotten : ndarray of shape (n_forgotten, 2)
        The forgotten rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        The axes and the figure.
    estimator_ : classifier
        Copy of the classifier that has forgotten the rows.

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

    before: BoundaryDisplay
    after: BoundaryDisplay
    forgotten: FloatArray
    estimator_: Any = field(init=False)

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
        """Forget rows in a copy of a classifier, and plot both decision boundaries.

        Parameters
        ----------
        estimator : classifier
            A fitted classifier with two features and a forget() method; it is not changed.
        X : array-like of shape (n_samples, 2)
            Rows that were learned.
        y : array-like of shape (n_samples,)
            Labels of the rows.
        forget : array-like of int or bool
            Indices or mask of the rows to forget.
        resolution : int, default=200
            Number of grid points in each direction.
        ax : matplotlib axes, optional
            The axes; a new figure by default.

        Returns
        -------
        ForgetDisplay
        """
        if not hasattr(estimator, "forget"):
            raise ParameterError(f"{type(estimator).__name__} cannot forget rows.", source="ForgetDisplay")
        rows, labels, chosen = _two_features(X, "ForgetDisplay"), np.asarray(y), np.asarray(forget)
        without = deepcopy(estimator)
        without.forget(rows[chosen], labels[chosen])
        before, after = (BoundaryDisplay._on_grid(rows, each, resolution) for each in (estimator, without))
        display = cls(before, after, rows[chosen])
        display.estimator_ = without
        display.plot(ax=ax)
        _scatter(display.ax_, rows, labels, before.classes)
        return display

    def _draw(self, ax: Any) -> None:
        for display, style in ((self.before, "dashed"), (self.after, "solid")):
            display.draw_lines(ax, linewidths=1.2, linestyles=style)
        ax.scatter(*self.forgotten.T, s=90, facecolors="none", edgecolors="black", label="forgotten")


def _two_features(X: ArrayLike, source: str) -> FloatArray:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows):
        raise DataError(f"expected rows with two features; got shape {rows.shape}.", source=source)
    return rows


def _scatter(ax: Any, rows: FloatArray, labels: np.ndarray[Any, Any], classes: list[Any]) -> None:
    for label in classes:
        ax.scatter(*rows[labels == label].T, s=14, label=str(label))
    ax.legend()
