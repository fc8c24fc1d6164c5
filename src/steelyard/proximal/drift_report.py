"""Drift report: which of class frequencies, features and concept changed, computed from class-wise sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
from scipy import stats

from steelyard._types import FloatArray
from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal.statistics import ClassMoments, ClassStatistics

# Minimum number of rows per class and period; smaller classes count only for the class frequencies.
_MIN_CLASS_ROWS = 20
_PRIOR_ROWS = 20.0  # number of pseudo-rows with the pooled variance that are added to each class
# Correlations are compared only if every class has at least this many rows in each period.
_MIN_CORRELATION_ROWS = 100
_SIGNIFICANCE = 1e-3  # significance level of the test of each cause, with a Bonferroni correction for columns
_MIN_EFFECT = 0.1  # minimum reported shift of a mean, in standard deviations
_RIDGE = 1e-6  # ridge relative to the mean variance; makes the covariance of dependent columns invertible
_TINY = 1e-300
CAUSES = ("prior", "features", "concept")


@dataclass(frozen=True)
class ColumnChange:
    """Change of one column between two periods, with its cause and p-value.

    Attributes
    ----------
    column : str
        Name of the column.
    cause : {"features", "concept"}
        "features": the column changed in the same way in all classes; "concept": it changed differently
        in different classes.
    p_value : float
        p-value of this column, corrected for the number of columns and tests.
    shifts : dict of label to float
        Change of the mean within each class, in standard deviations.
    scales : dict of label to float
        Standard deviation after the change divided by the standard deviation before, within each class.
    """

    column: str
    cause: str
    p_value: float
    shifts: dict[Label, float]
    scales: dict[Label, float]

    def __str__(self) -> str:
        parts = []
        for label, shift in self.shifts.items():
            moved = f"mean {shift:+.2f} sd" if abs(shift) >= _MIN_EFFECT / 2 else "mean unchanged"
            spread = self.scales[label]
            parts.append(f"{label}: {moved}" + (f", spread x {spread:.2f}" if abs(spread - 1) > 0.1 else ""))
        return f"{self.column} ({'; '.join(parts)})"

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain values for JSON."""
        shifts, scales = ({str(k): v for k, v in part.items()} for part in (self.shifts, self.scales))
        return {**vars(self), "shifts": shifts, "scales": scales}


@dataclass(frozen=True)
class DriftReport:
    """Differences between two periods of a stream and their causes.

    Attributes
    ----------
    causes : list of str
        Significant causes, the most significant first: "prior" (class frequencies), "features" (columns
        changed in the same way in all classes) and "concept" (columns changed differently in the classes).
    p_values : dict of str to float
        p-value of each cause.
    columns : list of ColumnChange
        Columns that changed, the most significant first.
    shares : dict of label to (float, float)
        Share of each class before and after.
    n_rows : tuple of (float, float)
        Number of rows before and after.
    plane_correlation : float or None
        Correlation of the linear scores of both periods on the same rows. It is 1 if the planes of both
        periods are equal.
    events : list of dict
        Drifts detected while the model was learning, with the keys ``row``, ``cause``, ``columns``, ``text``.
    """

    causes: list[str]
    p_values: dict[str, float]
    columns: list[ColumnChange]
    shares: dict[Label, tuple[float, float]]
    n_rows: tuple[float, float]
    plane_correlation: float | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_changed(self) -> bool:
        """Whether any cause of drift is significant."""
        return bool(self.causes)

    def renamed(self, names: Sequence[str]) -> DriftReport:
        """Return a copy of the report with the given names for the columns x0, x1, ..."""
        return replace(
            self,
            columns=[replace(change, column=_renamed(change.column, names)) for change in self.columns],
            events=[renamed_event(event, names) for event in self.events],
        )

    def columns_of(self, cause: str) -> list[str]:
        """Return the names of the columns that changed for a given cause, most significant column first."""
        return [change.column for change in self.columns if change.cause == cause]

    def __str__(self) -> str:
        lines = [
            f"{self.n_rows[0]:,.0f} rows before, {self.n_rows[1]:,.0f} after: "
            + (f"changed, cause: {', '.join(self.causes)}." if self.causes else "no significant change.")
        ]
        if "prior" in self.causes:
            moved = [f"{label} {a:.2%} -> {b:.2%}" for label, (a, b) in self.shares.items()]
            lines.append(f"prior (p = {self.p_values['prior']:.1e}): {', '.join(moved[:8])}")
        for cause in ("features", "concept"):
            if cause in self.causes:
                lines.append(f"{cause} (p = {self.p_values[cause]:.1e}):")
                lines += [f"  {change}" for change in self.columns if change.cause == cause][:8]
        if self.plane_correlation is not None:
            lines.append(f"correlation of the linear scores before and after: {self.plane_correlation:.2f}")
        lines += [f"row {event['row']:,}: {event['text']}" for event in self.events]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *lines = str(self).split("\n")
        items = "".join(f"<li>{escape(line.strip())}</li>" for line in lines)
        return f"<p><b>{escape(head)}</b></p><ul>{items}</ul>"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {
            "changed": self.has_changed,
            "causes": list(self.causes),
            "p_values": dict(self.p_values),
            "rows": {"before": self.n_rows[0], "after": self.n_rows[1]},
            "shares": {str(label): list(pair) for label, pair in self.shares.items()},
            "columns": [change.as_dict() for change in self.columns],
            "plane_correlation": self.plane_correlation,
            "events": [dict(event) for event in self.events],
        }


_EVENT_TEXTS = {
    "prior": "the class frequencies changed",
    "features": "columns moved in all classes",
    "concept": "columns moved differently within the classes",
}


def event_of(row: int, report: DriftReport) -> dict[str, Any]:
    """Return a drift event as a dictionary: row, causes, columns of each cause, and a text."""
    causes = report.causes or ["unknown"]
    found = [{"cause": cause, "columns": report.columns_of(cause)[:3]} for cause in causes]
    return renamed_event({"row": row, **found[0], "further": found[1:]}, ())


def renamed_event(event: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a copy of an event with the given names for the columns x0, x1, ..."""
    parts = [
        {
            "cause": part["cause"],
            "columns": list(dict.fromkeys(_renamed(column, names) for column in part["columns"])),
        }
        for part in (event, *event["further"])
    ]
    texts = [
        _EVENT_TEXTS.get(part["cause"], "something changed")
        + (f": {', '.join(part['columns'])}" if part["columns"] else "")
        for part in parts
    ]
    return {"row": event["row"], **parts[0], "further": parts[1:], "text": "; ".join(texts)}


def _renamed(column: str, names: Sequence[str]) -> str:
    number = column[1:]
    is_number = column.startswith("x") and number.isdecimal() and int(number) < len(names)
    return str(names[int(number)]) if is_number else column


def compare_statistics(
    before: ClassStatistics, after: ClassStatistics, names: Sequence[str] | None = None
) -> DriftReport:
    """Compare two periods by their exact class statistics.

    Parameters
    ----------
    before, after : ClassStatistics
        Statistics of the two periods. Each may be a sum over machines or sites.
    names : sequence of str, optional
        Names of the columns.

    Returns
    -------
    DriftReport

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.proximal import ClassStatistics, compare_statistics
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(4000, 3)), rng.random(4000) < 0.1
    >>> before, after = ClassStatistics(3), ClassStatistics(3)
    >>> before.add(X[:2000], y[:2000])
    >>> after.add(X[2000:] + [0.0, 0.8, 0.0], y[2000:])
    >>> report = compare_statistics(before, after)
    >>> report.causes, report.columns_of("features")
    (['features'], ['x1'])
    """
    if before.n_features != after.n_features:
        raise DataError(
            f"both periods must have the same columns; got {before.n_features} and {after.n_features}.",
            source="compare_statistics",
        )
    if not before.classes or not after.classes:
        raise DataError("both periods must have rows; one period has none.", source="compare_statistics")
    return compare_moments(ClassMoments.of(before), ClassMoments.of(after), names)


def compare_moments(
    before: ClassMoments, after: ClassMoments, names: Sequence[str] | None = None
) -> DriftReport:
    """Compare two periods by their class moments."""
    if names is None:
        names = [f"x{k}" for k in range(len(before.mean(next(iter(before.classes)))))]
    labels = sorted({**before.classes, **after.classes})
    compared = [c for c in labels if min(before.count(c), after.count(c)) >= _MIN_CLASS_ROWS]
    columns = _changed_columns(before, after, compared, [str(name) for name in names]) if compared else []
    p_values = {"prior": _prior_p_value(before, after, labels)}
    for cause in ("features", "concept"):
        p_values[cause] = min((c.p_value for c in columns if c.cause == cause), default=1.0)
    causes = [cause for cause in CAUSES if p_values[cause] <= _SIGNIFICANCE]
    causes.sort(key=lambda cause: p_values[cause])
    columns = [change for change in columns if change.cause in causes]
    shares = {c: (before.count(c) / before.n_rows, after.count(c) / after.n_rows) for c in labels}
    return DriftReport(
        causes, p_values, columns, shares, (before.n_rows, after.n_rows),
        _plane_correlation(before, after, compared),
    )  # fmt: skip


def _prior_p_value(before: ClassMoments, after: ClassMoments, labels: Sequence[Label]) -> float:
    """Return the p-value of a G-test for equal class frequencies; two classes use Yates' correction."""
    table = np.array([[period.count(label) for label in labels] for period in (before, after)])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table, lambda_="log-likelihood").pvalue)


def _column_tests(
    before: ClassMoments, after: ClassMoments, labels: Sequence[Label]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return log p-values by test and column for changes shared by all classes and for those of some classes.

    The former are tests of the mean and the standard deviation, the latter also of the correlations. The
    other results are the shift of each mean in standard deviations and the factor of each standard deviation,
    both of shape (n_classes, n_features).
    """
    n = np.array([[period.count(label) for label in labels] for period in (before, after)])
    means = np.array([[period.mean(label) for label in labels] for period in (before, after)])
    covariances = np.array([[period.covariance(label) for label in labels] for period in (before, after)])
    variances = np.maximum(np.einsum("pcjj->pcj", covariances), 0.0)
    # The variance of a constant column is zero or a rounding error, so it gets a small positive lower bound.
    floor = 1e-12 * np.maximum(variances.max(axis=(0, 1)), np.square(means).max(axis=(0, 1))) + _TINY
    variances = np.maximum(variances, floor)
    pooled = (variances * n[:, :, None]).sum(axis=0) / n.sum(axis=0)[:, None]
    # The variances of small classes are shrunk, because a binary column may have variance zero in a few rows.
    overall = (variances * n[:, :, None]).sum(axis=(0, 1)) / n.sum()
    weight = n[:, :, None]
    variances = (weight * variances + _PRIOR_ROWS * overall) / (weight + _PRIOR_ROWS)
    shift, shift_variance = means[1] - means[0], (variances / n[:, :, None]).sum(axis=0)
    scale = 0.5 * np.log(variances[1] / variances[0])
    # The logarithm of a standard deviation has variance 1 / (2 n) for normal columns.
    # Columns often have heavy tails, so 1 / n is used, the value for kurtosis 5.
    scale_variance = np.broadcast_to((1.0 / n).sum(axis=0)[:, None], scale.shape)
    common, different = zip(
        _split_log_p(shift, shift_variance), _split_log_p(scale, scale_variance), strict=True
    )
    all_different = np.array([*different, _correlation_log_p(covariances, variances, n)])
    return np.array(common), all_different, shift / np.sqrt(pooled), np.exp(scale)


def _split_log_p(change: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the log p-values of a change shared by all classes, and of class-specific changes."""
    weights = 1.0 / variance
    common = (change * weights).sum(axis=0) / weights.sum(axis=0)
    z = np.abs(common) * np.sqrt(weights.sum(axis=0))
    spread = (np.square(change - common) * weights).sum(axis=0)
    n_classes = len(change)
    different = stats.chi2.logsf(spread, n_classes - 1) if n_classes > 1 else np.zeros(change.shape[1])
    return math.log(2.0) + stats.norm.logsf(z), different


def _correlation_log_p(covariances: FloatArray, variances: FloatArray, n: FloatArray) -> FloatArray:
    """Return for each column the smallest log p-value of a class-specific change of its correlations."""
    n_features = variances.shape[2]
    if n_features < 2 or n.shape[1] < 2 or n.min() < _MIN_CORRELATION_ROWS:
        return np.zeros(n_features)
    sd = np.sqrt(variances)
    r = np.clip(covariances / (sd[:, :, :, None] * sd[:, :, None, :]), -0.999, 0.999)
    change = np.arctanh(r[1]) - np.arctanh(r[0])
    # The variance 1 / n of normal columns is doubled, because heavy tails make correlations less certain.
    variance = np.broadcast_to((2.0 / n).sum(axis=0)[:, None, None], change.shape)
    shape = (len(change), -1)
    _, different = _split_log_p(change.reshape(shape), variance.reshape(shape))
    different = different.reshape(n_features, n_features)
    np.fill_diagonal(different, 0.0)
    return np.asarray(different.min(axis=1) + math.log(n_features - 1))


def _changed_columns(
    before: ClassMoments, after: ClassMoments, labels: Sequence[Label], names: Sequence[str]
) -> list[ColumnChange]:
    """Return one entry per changed column, with the cause that has the smaller corrected p-value."""
    n_features = len(names)
    common, different, shifts, scales = _column_tests(before, after, labels)
    log_p_features = common.min(axis=0) + math.log(len(common) * n_features)
    log_p_concept = different.min(axis=0) + math.log(len(different) * n_features)
    # A common change of scale shifts class means differently, so only the stronger cause is reported.
    effects = np.abs(np.concatenate([shifts, np.log(scales)])).max(axis=0)
    is_large = effects >= _MIN_EFFECT
    is_large |= different[-1] + math.log(n_features) < math.log(_SIGNIFICANCE)
    cause = np.where(log_p_concept < log_p_features, "concept", "features")
    smallest = np.minimum(log_p_features, log_p_concept)
    order = np.argsort(smallest, kind="stable")
    return [
        ColumnChange(
            names[k],
            str(cause[k]),
            float(np.exp(min(smallest[k], 0.0))),
            dict(zip(labels, shifts[:, k].tolist(), strict=True)),
            dict(zip(labels, scales[:, k].tolist(), strict=True)),
        )
        for k in order.tolist()
        if is_large[k] and smallest[k] < math.log(_SIGNIFICANCE)
    ]


def _plane_correlation(before: ClassMoments, after: ClassMoments, labels: Sequence[Label]) -> float | None:
    """Return the correlation of the linear scores of both periods, or None unless there are two classes."""
    if len(labels) != 2:
        return None
    one, other = labels
    within = [
        (period.covariance(one) * period.count(one) + period.covariance(other) * period.count(other))
        / period.n_rows
        for period in (before, after)
    ]
    pooled = (within[0] + within[1]) / 2.0
    ridge = (_RIDGE * np.trace(pooled) / len(pooled) + _TINY) * np.eye(len(pooled))
    planes = [
        np.linalg.solve(covariance + ridge, period.mean(labels[1]) - period.mean(labels[0]))
        for covariance, period in zip(within, (before, after), strict=True)
    ]
    lengths = [math.sqrt(max(float(plane @ pooled @ plane), _TINY)) for plane in planes]
    return float(np.clip(planes[0] @ pooled @ planes[1] / (lengths[0] * lengths[1]), -1.0, 1.0))
