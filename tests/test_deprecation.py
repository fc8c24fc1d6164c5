"""Deprecated names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steelyard import ProximalSVC, base, persistence, thresholds
from steelyard.exceptions import DataError


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
    with pytest.warns(FutureWarning, match=r"validate_rows\(self, X, method\)") as caught:
        assert model._check_rows([[2]], "predict").tolist() == [[2.0]]
    assert caught[0].filename == __file__


def test_deprecation_warning_of_parameter_points_at_caller():
    with pytest.warns(FutureWarning, match="deprecated since 0.3.0 and will be gone in 0.4.0") as caught:
        ProximalSVC(ledger=True)
    assert caught[0].filename == __file__


def test_unknown_name_of_module_with_private_names_raises_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        base.nothing


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("import steelyard.cuts", ["the module steelyard.cuts"]),
        (
            "from steelyard.committee import MovingCut",
            ["the module steelyard.committee", "steelyard.ensemble.MovingCut"],
        ),
        ("from steelyard import MovingCut", ["steelyard.ensemble.MovingCut"]),
    ],
)
def test_deprecation_warning_of_import_points_at_the_import(tmp_path, line, names):
    script = tmp_path / "script.py"
    script.write_text(f"x = 1\n{line}\n")
    command = [sys.executable, "-W", "always", str(script)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    for name in names:
        assert f"{script}:2: FutureWarning: {name} is deprecated" in result.stderr


def test_parameter_under_both_names_raises():
    with pytest.raises(TypeError, match="got 'quantizer' and its former name 'grid'; write 'quantizer' only"):
        ProximalSVC(quantizer=None, grid=None)
