"""The measures as scorers, for scikit-learn's searches and cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.metrics import make_scorer as _sklearn_scorer

from steelyard.exceptions import ParameterError
from steelyard.metrics.batch import (
    f_beta_score,
    g_mean_score,
    pmauc_score,
    relative_sensitivity_score,
    roc_auc_score,
    sensitivity_score,
    specificity_score,
)

__all__ = ["get_scorer", "get_scorer_names", "make_scorer"]

_OF_LABELS: dict[str, Callable[..., float]] = {
    "f_beta": f_beta_score,
    "g_mean": g_mean_score,
    "relative_sensitivity": relative_sensitivity_score,
    "sensitivity": sensitivity_score,
    "specificity": specificity_score,
}
_OF_SCORES: dict[str, Callable[..., float]] = {"pmauc": pmauc_score, "roc_auc": roc_auc_score}


def get_scorer_names() -> list[str]:
    """The names that :func:`get_scorer` knows.

    Returns
    -------
    list of str
    """
    return sorted([*_OF_LABELS, *_OF_SCORES])


def get_scorer(name: str) -> Any:
    """A scorer by name, for ``scoring=`` of scikit-learn.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.

    Returns
    -------
    callable
        Takes an estimator, rows and labels; the larger the better.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from steelyard import ProximalSVC
    >>> from steelyard.metrics import get_scorer
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(300) < 0.2).astype(int)
    >>> X = rng.normal(size=(300, 2)) + 2.0 * y[:, None]
    >>> bool(cross_val_score(ProximalSVC(), X, y, scoring=get_scorer("g_mean")).mean() > 0.8)
    True
    """
    return make_scorer(name)


def make_scorer(name: str, **options: Any) -> Any:
    """A scorer by name with options of its measure, such as ``pos_label`` or ``beta``.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.
    **options
        Passed on to the measure at every call.

    Returns
    -------
    callable
        Takes an estimator, rows and labels; the larger the better.

    Examples
    --------
    >>> from steelyard.metrics import make_scorer
    >>> make_scorer("sensitivity", pos_label="fraud")
    make_scorer(sensitivity_score, response_method='predict', pos_label=fraud)
    """
    if name in _OF_LABELS:
        return _sklearn_scorer(_OF_LABELS[name], response_method="predict", **options)
    if name in _OF_SCORES:
        answers = ("decision_function", "predict_proba")
        return _sklearn_scorer(_OF_SCORES[name], response_method=answers, **options)
    raise ParameterError(
        f"name must be one of {', '.join(get_scorer_names())}; got {name!r}.", source="make_scorer"
    )
