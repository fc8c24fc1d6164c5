"""Export of a linear model as a C header without dependencies, for embedded devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from steelyard._types import FloatArray
from steelyard._validation import check_started
from steelyard.base import Label
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
    linear = _LinearModel.of(model)
    # In the templates, @ is a placeholder for the name. _text escapes @ in labels and feature names.
    parts = [_TOP, _numbers(linear), _SCORES, _class(linear)]
    if linear.categories:
        parts += [_categories(linear)]
    body = "\n".join(parts).replace("@UPPER@", name.upper()).replace("@", name)
    guard = f"STEELYARD_{name.upper()}_H"
    return f"#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"


@dataclass(frozen=True, slots=True)
class _LinearModel:
    """Coefficients, labels and feature names of a linear model; features of categories come last."""

    # Shape (n_planes, n_features), where n_planes is 1 for up to two classes, else n_classes.
    coef: FloatArray
    intercept: FloatArray  # one intercept per plane, shape (n_planes,)
    classes: list[Label]
    features: list[str]
    categories: list[tuple[str, str]]

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return the coefficients of a learner or table model; raise DataError if it is not linear."""
        learner = model.estimator if isinstance(model, TableModel) else model
        if not isinstance(learner, ProximalSVC) or learner.feature_map is not None:
            raise DataError(
                f"only a fitted ProximalSVC without a feature map is linear; got {type(learner).__name__}"
                f"{' with a feature map' if isinstance(learner, ProximalSVC) else ''}.",
                source="c_header",
            )
        check_started(learner, "c_header")
        coef = np.atleast_2d(learner.coef_)
        n_features = coef.shape[1]
        names = learner.__dict__.get("feature_names_in_", learner.__dict__.get("_keys", ()))
        categories: list[tuple[str, str]] = []
        if isinstance(model, TableModel):
            late = model.encoder.numbers[len(model.encoder.numeric_) :]
            if late:
                raise DataError(
                    f"column {late[0]!r} was added to the model later, and cannot be exported.",
                    source="c_header",
                    hint="fit a model to a table that has all columns from the start",
                )
            names = model.feature_names[:n_features]
            categories = model.encoder.categories_[: n_features - len(model.encoder.numeric_)]
        features = [str(name) for name in names] or [f"x{column}" for column in range(n_features)]
        intercept = np.atleast_1d(learner.intercept_)
        return cls(coef, intercept, learner.classes_.tolist(), features, categories)


_TOP = """/* A linear model, written by steelyard.
 *
 * x has @UPPER@_FEATURES finite numbers, in the order of @_features; the caller replaces missing values.
 * A category is a feature "column=value": 1 in the rows that have it, 0 in all others.
 */"""

_SCORES = """/* One score per class; with two classes one score, positive for the second. */
static inline void @_scores(const double *x, double *scores) {
    for (int k = 0; k < @UPPER@_SCORES; ++k) {
        double sum = @_intercept[k];
        for (int j = 0; j < @UPPER@_FEATURES; ++j) sum += @_coef[k][j] * x[j];
        scores[k] = sum;
    }
}
"""


def _numbers(linear: _LinearModel) -> str:
    rows = ",\n".join(f"    {{{_row(row)}}}" for row in linear.coef)
    return f"""#define @UPPER@_FEATURES {linear.coef.shape[1]}
#define @UPPER@_CLASSES {len(linear.classes)}
#define @UPPER@_SCORES {len(linear.coef)}

static const char *const @_features[] = {{{_texts(linear.features)}}};
static const char *const @_labels[] = {{{_texts([str(label) for label in linear.classes])}}};
static const double @_coef[][@UPPER@_FEATURES] = {{
{rows}
}};
static const double @_intercept[] = {{{_row(linear.intercept)}}};
"""


def _class(linear: _LinearModel) -> str:
    if len(linear.classes) == 1:
        rule = "    (void)x;\n    return 0;"
    elif len(linear.coef) == 1:
        rule = "    double score;\n    @_scores(x, &score);\n    return score > 0.0;"
    else:
        rule = """    double scores[@UPPER@_SCORES];
    int best = 0;
    @_scores(x, scores);
    for (int k = 1; k < @UPPER@_SCORES; ++k) {
        if (scores[k] > scores[best]) best = k;
    }
    return best;"""
    return f"""/* Index of the predicted class in @_labels. */
static inline int @_class(const double *x) {{
{rule}
}}
"""


def _categories(linear: _LinearModel) -> str:
    first = len(linear.features) - len(linear.categories)
    pairs = ",\n".join(f"    {{{_text(column)}, {_text(value)}}}" for column, value in linear.categories)
    return f"""#include <string.h>

static const char *const @_categories[][2] = {{
{pairs}
}};

/* Set the feature of a category in a row of zeros; returns 0 for a category unknown to the model. */
static inline int @_set_category(double *x, const char *column, const char *value) {{
    for (int c = 0; c < {len(linear.categories)}; ++c) {{
        if (strcmp(@_categories[c][0], column) == 0 && strcmp(@_categories[c][1], value) == 0) {{
            x[{first} + c] = 1.0;
            return 1;
        }}
    }}
    return 0;
}}
"""


def _row(values: FloatArray) -> str:
    return ", ".join(repr(float(value)) for value in values)


def _texts(texts: list[str]) -> str:
    return ", ".join(_text(text) for text in texts)


def _text(text: str) -> str:
    """Return a C string literal; characters outside printable ASCII are escaped in octal."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _=-+.,:;/()[]{}<>!#$%&*^|~")
    letters = (
        chr(byte) if byte in plain else f"\\{byte:03o}" for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{"".join(letters)}"'
