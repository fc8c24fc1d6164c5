"""Scorers for scikit-learn's model selection."""

from __future__ import annotations

from typing import Any

from sklearn.metrics import make_scorer as _sklearn_scorer

from steelyard.exceptions import ParameterError
from steelyard.metrics import batch, batch_scores

_LABELS: dict[str, Any] = {"response_method": "predict"}
_SCORES: dict[str, Any] = {"response_method": ("decision_function", "predict_proba")}
_LOSS: dict[str, Any] = {"response_method": "predict_proba", "greater_is_better": False}
_SCORERS = {
    "average_precision": (batch_scores.average_precision_score, _SCORES),
    "cohen_kappa": (batch.cohen_kappa_score, _LABELS),
    "f_beta": (batch.f_beta_score, _LABELS),
    "g_mean": (batch.g_mean_score, _LABELS),
    "neg_brier": (batch_scores.brier_score, _LOSS),
    "neg_expected_calibration_error": (batch_scores.expected_calibration_error, _LOSS),
    "neg_log_loss": (batch_scores.log_loss_score, _LOSS),
    "pmauc": (batch_scores.pmauc_score, _SCORES),
    "precision_at_k": (batch_scores.precision_at_k_score, _SCORES),
    "recall_at_k": (batch_scores.recall_at_k_score, _SCORES),
    "relative_sensitivity": (batch.relative_sensitivity_score, _LABELS),
    "roc_auc": (batch_scores.roc_auc_score, _SCORES),
    "sensitivity": (batch.sensitivity_score, _LABELS),
    "specificity": (batch.specificity_score, _LABELS),
}


def get_scorer_names() -> list[str]:
    """Return the names that :func:`get_scorer` accepts.

    Returns
    -------
    list of str
    """
    return sorted(_SCORERS)


def get_scorer(name: str) -> Any:
    """Return a scorer by name, for ``scoring=`` of scikit-learn.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.

    Returns
    -------
    callable
        A function of an estimator, rows and labels; the larger its value, the better.

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
    """Return a scorer by name, with options of its measure such as ``pos_label``, ``beta`` or ``k``.

    Parameters
    ----------
    name : str
        One of :func:`get_scorer_names`.
    **options
        Keyword arguments of the measure.

    Returns
    -------
    callable
        A function of an estimator, rows and labels; the larger its value, the better.

    Examples
    --------
    >>> from steelyard.metrics import make_scorer
    >>> make_scorer("sensitivity", pos_label="fraud")
    make_scorer(sensitivity_score, response_method='predict', pos_label=fraud)
    """
    if name not in _SCORERS:
        raise ParameterError(
            f"name must be one of {', '.join(get_scorer_names())}; got {name!r}.", source="make_scorer"
        )
    measure, how = _SCORERS[name]
    return _sklearn_scorer(measure, **how, **options)
