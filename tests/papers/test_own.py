"""Candidates are selected within the training rows only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from papers import Context
from papers.own.candidates import AUTOMATIC, CHOSEN, STREAM, Contest, Field, field_of, held, told

SMALL = Field(components=(20, 40), penalties=(1.0,), widths=(1.0,), plain=True)


@pytest.fixture
def contest(rng):
    """Return a dataset with a disc inside a ring, which a kernel separates and a plane does not."""
    X = rng.normal(size=(400, 2))
    y = (np.hypot(*X.T) < 0.7).astype(np.int64)
    rows = rng.permutation(400)
    return Contest("disc", X, y, rows[:250], rows[250:], ("AUC", "G-mean"), SMALL, 0)


@pytest.mark.parametrize("name", SMALL.candidates(2, 0))
def test_every_candidate_fits_and_predicts(contest, name):
    learner = SMALL.candidates(2, 0)[name].taught(contest.X[contest.train], contest.y[contest.train])
    assert set(np.unique(learner.predict(contest.X))) <= {0, 1}
    assert learner.decision_function(contest.X[:5]).shape == (5,)


def test_model_selection_does_not_use_test_rows(contest):
    name, answers = contest.held()
    turned = contest.y.copy()
    turned[contest.test] = 1 - turned[contest.test]
    other, turned_answers = replace(contest, y=turned).held()
    assert name == other
    assert turned_answers[CHOSEN]["AUC"] == pytest.approx(1.0 - answers[CHOSEN]["AUC"])


def test_model_selection_prefers_kernel_on_ring_data(contest):
    name, answers = contest.held()
    assert name not in {"ProximalSVC, linear", "wLPSVM"}
    assert answers[CHOSEN]["AUC"] > answers["wLPSVM"]["AUC"] + 0.2
    assert set(answers) == {CHOSEN, STREAM, AUTOMATIC, "wLPSVM"}


def test_paired_outcomes_are_grouped_by_subject(contest):
    outcomes = held(Context(), [contest, replace(contest, seed=1), replace(contest, subject="again")])
    assert {subject: len(outcome.chosen) for subject, outcome in outcomes.items()} == {"disc": 2, "again": 1}
    assert len(outcomes["disc"].values[CHOSEN, "AUC"]) == 2
    assert told(outcomes).startswith(
        "Learners selected by cross-validation, with the number of rounds: disc: "
    )


def test_cell_key_contains_all_inputs(contest):
    others = [
        replace(contest, seed=1),
        replace(contest, field=replace(SMALL, penalties=(2.0,))),
        replace(contest, test=contest.test[1:]),
        replace(contest, measures=("AUC",)),
        replace(contest, X=contest.X + 1.0),
    ]
    assert all(other.key() != contest.key() for other in others)
    assert field_of(Context()) == field_of(Context(quick=True)) == Field()
