"""Contract checks of TableModel over real tables: text, categories, dates, booleans and missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from steelyard import KOIL, IncrementalSVC, ProximalSVC, StreamClassifier, TableModel
from steelyard.base import ForgettingMixin, Learner, MergingMixin, Traits
from steelyard.checks import NotApplicable, learner_checks
from steelyard.persistence import storable
from steelyard.tables.encoding import TableEncoder

_BY_NAME = "columns are matched by name, in any order, and new columns are learned"
_FIRST_ROWS = "the first rows determine the number that replaces missing values"
_IN_PLACE = "the estimator and the encoder are trained in place, not copied"
# Checks that take seconds. For StreamClassifier and IncrementalSVC they are run by test_learners.py only.
_SLOW = {"interrupted_calls_are_atomic", "copies_are_independent", "memory_stays_bounded"}


def table_of(X, form):
    """Return rows of four numbers as a table. The numbers alone determine which cells are missing."""
    parts = np.floor(np.abs(X) * 4096.0) % 8
    start = np.datetime64("2026-01-01", "s")
    seconds = np.where(np.isfinite(X[:, 3]), np.rint(X[:, 3] * 86_400), 0).astype("timedelta64[s]")
    frame = pd.DataFrame(
        {
            "amount": np.where(parts[:, 0] == 0, np.nan, X[:, 0]),
            "country": np.array(["AU", "NZ", "US"], dtype=object)[np.digitize(X[:, 1], [-0.5, 0.8])],
            "kind": pd.Categorical(np.where(X[:, 2] > 0.3, "web", "shop"), categories=["shop", "web"]),
            "when": pd.Series(start + seconds),
            "member": X[:, 2] > 0,
            "size": X[:, 3],
        }
    )
    frame.loc[parts[:, 1] == 1, "country"] = None
    frame.loc[parts[:, 2] == 2, "kind"] = np.nan
    frame.loc[parts[:, 3] == 3, "when"] = pd.NaT
    if form == "polars":
        return pl.from_pandas(frame)
    if form == "arrow":
        return pa.Table.from_pandas(frame, preserve_index=False)
    return frame.to_dict("records") if form == "dicts" else frame


class _OverTables(TableModel):
    """TableModel that turns the arrays of the contract checks into tables of one form."""

    def __init__(self, estimator, encoder=None, target="label", time=None, form="pandas"):
        super().__init__(estimator, encoder, target, time)
        self.form = form

    @property
    def _traits(self):
        exempt = {"errors_change_nothing": _BY_NAME, "data_frames": _BY_NAME}
        if self.encoder.missing == "indicator":
            first = (
                "chunk_borders_do_not_matter",
                "fit_equals_partial_fit",
                "merge_equals_learning_together",
            )
            exempt |= dict.fromkeys(first, _FIRST_ROWS)
        inner = self.estimator._traits
        return Traits(inner.exact, inner.rounding, inner.bounded_memory, tuple(exempt.items()))

    def note(self, *arguments):
        super().note(*arguments).history[-1]["when"] = ""  # the compared states have different times
        return self

    def _memory_chunk(self, X, *arguments, **options):
        if isinstance(X, np.ndarray):
            X = table_of(X, self.form)
        return super()._memory_chunk(X, *arguments, **options)


@storable("TablesOfForgetting")
class TablesOfForgetting(_OverTables, ForgettingMixin):
    """TableModel of a learner that can forget."""


@storable("TablesOfMerging")
class TablesOfMerging(_OverTables, ForgettingMixin, MergingMixin):
    """TableModel of a learner that can forget and merge."""


@storable("TablesOfLearning")
class TablesOfLearning(_OverTables, Learner):
    """TableModel of a learner that can neither forget nor merge."""


MODELS = [
    TablesOfMerging(ProximalSVC(), TableEncoder("zero"), form="polars"),
    TablesOfForgetting(ProximalSVC(), form="pandas"),
    TablesOfForgetting(IncrementalSVC(gamma=0.3), form="arrow"),
    TablesOfForgetting(StreamClassifier(), form="dicts"),
    TablesOfLearning(KOIL(random_state=0), form="pandas"),
]


def _cases():
    for model in MODELS:
        for name, check in learner_checks(model):
            if name in _SLOW and isinstance(model.estimator, StreamClassifier | IncrementalSVC):
                continue
            yield pytest.param(model, check, id=f"{type(model.estimator).__name__}-{model.form}-{name}")


@pytest.mark.parametrize(("model", "check"), list(_cases()))
def test_table_model_passes_contract_check_over_tables(model, check):
    try:
        check(model)
    except NotApplicable as reason:
        pytest.skip(f"does not apply: {reason}")


@parametrize_with_checks(
    [TableModel(ProximalSVC()), TableModel(KOIL(random_state=0))],
    expected_failed_checks=lambda model: {
        "check_estimators_overwrite_params": _IN_PLACE,
        "check_dont_overwrite_parameters": _IN_PLACE,
        "check_parameters_default_constructible": "without an encoder the attribute is a new TableEncoder()",
        **(
            {"check_sample_weight_equivalence_on_dense_data": "rows are learned one at a time in their order"}
            if isinstance(model.estimator, KOIL)
            else {}
        ),
    },
)
def test_table_model_passes_scikit_learn_check(estimator, check):
    check(estimator)
