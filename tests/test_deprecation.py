"""Deprecated names."""

from __future__ import annotations

import inspect

import pytest
from sklearn.base import BaseEstimator, clone

from steelyard import ProximalSVC, base, persistence, thresholds
from steelyard._deprecation import deprecated
from steelyard.exceptions import DataError


@deprecated(since="0.2.0", gone_in="0.4.0", instead="merge()")
def combine(first, second=0):
    """Add two numbers."""
    return first + second


class Box:
    @deprecated(since="0.2.0", gone_in="0.4.0", instead="contents")
    def content(self):
        return 7


@deprecated(since="0.2.0", gone_in="0.4.0", instead="ProximalSVC")
class OldLearner(BaseEstimator):
    """A deprecated learner."""

    def __init__(self, C=1.0):
        self.C = C


def test_deprecated_function_works_and_names_replacement():
    with pytest.warns(
        FutureWarning, match=r"combine is deprecated since 0\.2\.0 .* gone in 0\.4\.0; write merge\(\)"
    ):
        assert combine(1, second=2) == 3
    with pytest.warns(FutureWarning, match=r"Box\.content .* write contents"):
        assert Box().content() == 7


def test_deprecation_warning_points_at_caller():
    with pytest.warns(FutureWarning) as caught:
        combine(1)
    assert caught[0].filename == __file__


def test_deprecated_function_keeps_docstring_and_signature():
    assert combine.__doc__.startswith("Add two numbers.")
    assert combine.__doc__.endswith("write ``merge()``.")
    assert list(inspect.signature(combine).parameters) == ["first", "second"]


def test_deprecated_class_stays_cloneable():
    with pytest.warns(FutureWarning, match="OldLearner"):
        old = OldLearner(C=2.0)
    assert isinstance(old, OldLearner)
    with pytest.warns(FutureWarning):
        assert clone(old).get_params() == {"C": 2.0}


def test_deprecation_shorter_than_a_minor_version_raises():
    with pytest.raises(ValueError, match="must last for at least one minor version"):
        deprecated(since="0.2.0", gone_in="0.2.9", instead="merge()")


@pytest.mark.parametrize("name", ["encode", "decode", "to_parts", "write_whole"])
def test_private_name_of_persistence_is_available_with_warning(name):
    with pytest.warns(FutureWarning, match=f"persistence.{name} is private since 0.3.0"):
        assert callable(getattr(persistence, name))
    assert name not in persistence.__all__


def test_former_attributes_of_errors_are_available_with_warning():
    error = DataError("expected rows; got none.", source="ProximalSVC.fit")
    with pytest.warns(FutureWarning, match="write message"):
        assert error.sentence == "expected rows; got none."
    with pytest.warns(FutureWarning, match="write source"):
        assert error.who == "ProximalSVC.fit"
    with pytest.warns(FutureWarning, match="write with_source"):
        assert error.told_by("here").source == "here"


@pytest.mark.parametrize("name", ["gmean", "normal_gmean", "smooth_gmean"])
def test_former_names_of_thresholds_are_available_with_warning(name):
    with pytest.warns(FutureWarning, match=f"{name}_threshold"):
        assert getattr(thresholds, f"{name}_cut") is getattr(thresholds, f"{name}_threshold")


@pytest.mark.parametrize("name", ["all_or_nothing", "in_turn", "of_one_moment"])
def test_former_decorators_of_base_are_available_with_warning(name):
    with pytest.warns(FutureWarning, match=f"base.{name} is deprecated"):
        assert callable(getattr(base, name))


def test_former_method_check_rows_validates_with_warning():
    model = ProximalSVC().fit([[0.0], [1.0]], [0, 1])
    with pytest.warns(FutureWarning, match="validate_rows"):
        assert model._check_rows([[2]], "predict").tolist() == [[2.0]]


def test_unknown_name_of_module_with_private_names_raises_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        base.nothing
