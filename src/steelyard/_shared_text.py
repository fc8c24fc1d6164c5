"""What docstrings of several classes say alike, written once.

In the source a docstring only names the parameters or attributes::

    kernel, gamma, degree, coef0
        As in all online kernel learners.

and :func:`spelled_out` puts the full text in their place, so that help() and the reference show it.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import TypeVar

__all__ = ["spelled_out"]

Class = TypeVar("Class", bound=type)

_TEXTS = {
    "kernel, gamma, degree, coef0": """\
kernel : {"rbf", "linear", "polynomial", "laplacian", "sigmoid"} or sequence kernel, default="rbf"
    Kernel function, see :class:`steelyard.kernels.Kernel`; settled, with its numbers, by the first rows.
    With a sequence kernel ``X`` is a list of sequences everywhere.
gamma : float or {"scale", "median"}, default=1.0
    Of the kernel. "median" is 1 / median distance between the first rows, "scale" as in
    :class:`steelyard.kernels.Kernel`.
degree : int, default=3
    Of the polynomial kernel.
coef0 : float, default=0.0
    Of the polynomial and sigmoid kernels.
""",
    "classes_, support_vectors_, dual_coef_": """\
classes_ : ndarray of shape (n_classes,)
    Labels seen, sorted. More than two are learned one against the rest.
support_vectors_ : ndarray of shape (n_vectors, n_features), or list of them
    Vectors kept; one array a class when there are more than two classes.
dual_coef_ : ndarray of shape (n_vectors,), or list of them
    Their weights, positive for the second class (for the array's own class).
""",
    "classes_, coef_, intercept_": """\
classes_ : ndarray of shape (n_classes,)
    Labels seen, sorted. More than two are learned one against the rest.
coef_ : ndarray of shape (1 or n_classes, n_features)
    Normals.
intercept_ : ndarray of shape (1 or n_classes,)
    Intercepts.
""",
    "n_features_in_, feature_names_in_": """\
n_features_in_ : int
    Number of features seen.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, when all names are strings.
""",
}


def spelled_out(cls: Class) -> Class:
    """Put the full text where the docstring of a class only names what it shares with others."""
    if cls.__doc__ is not None:  # as it is when Python leaves docstrings out
        for names, text in _TEXTS.items():
            # From Python 3.13 on the compiler takes the indentation off.
            entry = re.compile(rf"^( *){re.escape(names)}\n(?:\1    .*\n)+", re.MULTILINE)
            cls.__doc__ = entry.sub(lambda found, text=text: indent(text, found[1]), cls.__doc__)  # type: ignore[misc]
    return cls
