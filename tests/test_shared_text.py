"""Shared documentation of parameters is inserted into docstrings."""

from __future__ import annotations

import inspect

import pytest

import steelyard
from steelyard import online
from steelyard._shared_text import expand_shared_text

CLASSES = [getattr(online, name) for name in online.__all__] + [
    steelyard.IncrementalSVC,
    steelyard.EnclosingClassifier,
]


@pytest.mark.parametrize("cls", CLASSES)
def test_docstrings_contain_expanded_parameters(cls):
    text = inspect.getdoc(cls)
    assert "As in all" not in text
    assert "feature_names_in_ : ndarray" in text
    listed = text.split("Attributes\n----------")[0]
    for name in inspect.signature(cls).parameters:
        assert f"\n{name} : " in listed or cls is online.MultiKernelKOIL


def test_expand_shared_text_replaces_only_named_entries():
    class Example:
        pass

    Example.__doc__ = """An example.

    Attributes
    ----------
    own_ : int
        Its own.
    n_features_in_, feature_names_in_
        As in all learners.
    last_ : float
        The last.
    """
    named, text = Example.__doc__.splitlines(), expand_shared_text(Example).__doc__.splitlines()
    assert text[:6] == named[:6]
    assert text[6:10:2] == [
        "    n_features_in_ : int",
        "    feature_names_in_ : ndarray of shape (n_features_in_,)",
    ]
    assert text[10:] == named[8:]
