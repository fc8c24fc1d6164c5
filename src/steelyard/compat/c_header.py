"""Export of a linear model as a C header without dependencies, for embedded devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Template
from typing import Any

import numpy as np

from steelyard._validation import check_started
from steelyard.exceptions import DataError, ParameterError
from steelyard.proximal import ProximalSVC
from steelyard.tables import TableModel

__all__ = ["c_header"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def c_header(model: Any, name: str = "model") -> str:
    """Return a C99 header (also valid C++) that computes the scores of a linear model.

    It defines ``NAME_FEATURES``, ``NAME_CLASSES``, ``NAME_SCORES``, the strings ``NAME_features`` and
    ``NAME_labels``, ``NAME_scores(x, scores)`` and ``NAME_class(x)``, which returns the index of the
    predicted class in ``NAME_labels``. For a model with categories, ``NAME_set_category(x, column, value)``
    sets the feature of a category to 1.

    Parameters
    ----------
    model : ProximalSVC or TableModel
        A fitted ProximalSVC without a feature map, or a TableModel that contains one.
    name : str, default="model"
        Prefix of all names in the header.

    Returns
    -------
    str

    Examples
    --------
    >>> from steelyard import ProximalSVC
    >>> from steelyard.compat.c_header import c_header
    >>> header = c_header(ProximalSVC().fit([[0.0], [1.0]], ["low", "high"]), "pump")
    >>> "static inline int pump_class(const double *x)" in header
    True
    """
    if not _IDENTIFIER.fullmatch(name):
        raise ParameterError(f"name must be a C identifier; got {name!r}.", source="c_header")
    learner = model.estimator if isinstance(model, TableModel) else model
    if not isinstance(learner, ProximalSVC) or learner.feature_map is not None:
        raise DataError(
            f"only a fitted ProximalSVC without a feature map is linear; got {type(learner).__name__}"
            f"{' with a feature map' if isinstance(learner, ProximalSVC) else ''}.",
            source="c_header",
        )
    check_started(learner, "c_header")
    coef, classes = np.atleast_2d(learner.coef_), learner.classes_.tolist()
    features, categories = _columns(model, learner, coef.shape[1])
    template = _HEADER + _CATEGORIES * bool(categories) + _END
    return Template(template.replace("@UPPER@", name.upper()).replace("@", name)).substitute(
        n_features=coef.shape[1],
        n_classes=len(classes),
        n_scores=len(coef),
        features=_texts(features),
        labels=_texts(map(str, classes)),
        coef=",\n".join(f"    {{{_numbers(row)}}}" for row in coef),
        intercept=_numbers(np.atleast_1d(learner.intercept_)),
        rule=_RULES[min(len(classes), 3)].replace("@UPPER@", name.upper()).replace("@", name),
        n_categories=len(categories),
        first_category=len(features) - len(categories),
        categories=",\n".join(f"    {{{_texts(pair)}}}" for pair in categories),
    )


def _columns(model: Any, learner: ProximalSVC, n_features: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names of all features, and column and value of the last ones, which are categories."""
    if not isinstance(model, TableModel):
        names = learner.__dict__.get("feature_names_in_", learner.__dict__.get("_keys", ()))
        return [str(name) for name in names] or [f"x{column}" for column in range(n_features)], []
    n_numeric = len(model.encoder.numeric_)
    if late := model.encoder.numbers[n_numeric:]:
        raise DataError(
            f"column {late[0]!r} was added to the model later, and cannot be exported.",
            source="c_header",
            hint="fit a model to a table that has all columns from the start",
        )
    return model.feature_names[:n_features], model.encoder.categories_[: n_features - n_numeric]


# In the templates, @ is a placeholder for the name.
_HEADER = """#ifndef STEELYARD_@UPPER@_H
#define STEELYARD_@UPPER@_H

/* A linear model, written by steelyard.
 *
 * x has @UPPER@_FEATURES finite numbers, in the order of @_features; the caller replaces missing values.
 * A category is a feature "column=value": 1 in the rows that have it, 0 in all others.
 */
#define @UPPER@_FEATURES $n_features
#define @UPPER@_CLASSES $n_classes
#define @UPPER@_SCORES $n_scores

static const char *const @_features[] = {$features};
static const char *const @_labels[] = {$labels};
static const double @_coef[][@UPPER@_FEATURES] = {
$coef
};
static const double @_intercept[] = {$intercept};

/* One score per class; with two classes one score, positive for the second. */
static inline void @_scores(const double *x, double *scores) {
    for (int k = 0; k < @UPPER@_SCORES; ++k) {
        double sum = @_intercept[k];
        for (int j = 0; j < @UPPER@_FEATURES; ++j) sum += @_coef[k][j] * x[j];
        scores[k] = sum;
    }
}

/* Index of the predicted class in @_labels. */
static inline int @_class(const double *x) {
$rule
}
"""

_CATEGORIES = """
#include <string.h>

static const char *const @_categories[][2] = {
$categories
};

/* Set the feature of a category in a row of zeros; returns 0 for a category unknown to the model. */
static inline int @_set_category(double *x, const char *column, const char *value) {
    for (int c = 0; c < $n_categories; ++c) {
        if (strcmp(@_categories[c][0], column) == 0 && strcmp(@_categories[c][1], value) == 0) {
            x[$first_category + c] = 1.0;
            return 1;
        }
    }
    return 0;
}
"""

_END = "\n#endif\n"

# Bodies of the function that returns the class, by number of classes; the key 3 is for three or more.
_RULES = {
    1: "    (void)x;\n    return 0;",
    2: "    double score;\n    @_scores(x, &score);\n    return score > 0.0;",
    3: """    double scores[@UPPER@_SCORES];
    int best = 0;
    @_scores(x, scores);
    for (int k = 1; k < @UPPER@_SCORES; ++k) {
        if (scores[k] > scores[best]) best = k;
    }
    return best;""",
}


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(repr(float(value)) for value in values)


def _texts(texts: Iterable[str]) -> str:
    """Return C string literals; characters outside printable ASCII are escaped in octal."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _=-+.,:;/()[]{}<>!#$%&*^|~")
    encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
    escaped = ("".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in data) for data in encoded)
    return ", ".join(f'"{literal}"' for literal in escaped)
