"""Documentation of parameters, attributes and examples that several classes share.

In the source code a docstring only names them::

    kernel, gamma, degree, coef0
        As in all online kernel learners.

and :func:`expand_shared_text` inserts the full text, so that help() and the API reference show it.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import TypeVar

Class = TypeVar("Class", bound=type)

_FEATURES = """\
n_features_in_ : int
    Number of features seen.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, when all names are strings.
"""
_TEXTS = {
    "kernel, gamma, degree, coef0": """\
kernel : {"rbf", "linear", "polynomial", "laplacian", "sigmoid"} or sequence kernel, default="rbf"
    Kernel function, see :class:`steelyard.kernels.Kernel`; its parameters are fixed by the first rows. With a
    sequence kernel, ``X`` is a list of sequences in all methods.
gamma : float or {"scale", "median"}, default=1.0
    Kernel coefficient. "median" is 1 / median distance between the rows of the first call (squared for
    "rbf"), so the first call should have more than a few rows; "scale" as in
    :class:`steelyard.kernels.Kernel`.
degree : int, default=3
    Degree of the polynomial kernel.
coef0 : float, default=0.0
    Constant of the polynomial and sigmoid kernels.
""",
    "classes_, support_vectors_, dual_coef_, n_features_in_, feature_names_in_": """\
classes_ : ndarray of shape (n_classes,)
    Labels, sorted. More than two classes are learned one-vs-rest.
support_vectors_ : ndarray of shape (n_vectors, n_features), or list of them
    Support vectors; one array per class if there are more than two classes.
dual_coef_ : ndarray of shape (n_vectors,), or list of them
    Coefficients of the support vectors. They are positive for support vectors of the second class or, with
    more than two classes, of the class that the array belongs to.
"""
    + _FEATURES,
    "classes_, coef_, intercept_, n_features_in_, feature_names_in_": """\
classes_ : ndarray of shape (n_classes,)
    Labels, sorted. More than two classes are learned one-vs-rest.
coef_ : ndarray of shape (1 or n_classes, n_features)
    Coefficients of the features.
intercept_ : ndarray of shape (1 or n_classes,)
    Intercepts.
"""
    + _FEATURES,
    "n_features_in_, feature_names_in_": _FEATURES,
    "rows X of two classes y": """\
>>> import numpy as np
>>> from steelyard import online
>>> rng = np.random.default_rng(0)
>>> y = (rng.random(500) < 0.3).astype(int)
>>> X = rng.normal(size=(500, 2)) + 3.0 * y[:, None]
""",
}


def expand_shared_text(cls: Class) -> Class:
    """Insert the full text of shared entries into the docstring of a class."""
    if cls.__doc__ is not None:  # with python -OO there are no docstrings
        for names, text in _TEXTS.items():
            # Since Python 3.13 the compiler removes the indentation of docstrings.
            entry = re.compile(rf"^( *){re.escape(names)}\n(?:\1    .*\n)+", re.MULTILINE)
            cls.__doc__ = entry.sub(lambda found, text=text: indent(text, found[1]), cls.__doc__)  # type: ignore[misc]
    return cls
