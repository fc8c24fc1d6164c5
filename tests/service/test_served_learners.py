"""Every learner of the service learns, predicts, survives a restart, and forgets rows or raises."""

from __future__ import annotations

import json

import pytest

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.spec import LEARNERS
from tests.service.data import records, spec
from tests.service.sessions import ModelSession, batch
from tests.service.test_wire import unlabelled

# The specs have no seed, because recovery must draw the same random numbers without a given seed.
SERVED = [*({"class": name} for name in LEARNERS), {"class": "ProximalSVC", "features": 50}]


@pytest.fixture(params=SERVED, ids=lambda learner: "-".join(map(str, learner.values())))
def session(request, tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(learner=request.param)))
    rows = records(120)
    for begin in range(0, 120, 40):
        session.do(Learn("m", batch(rows[begin : begin + 40])))
    return session


def said(session):
    answers, chances = session.model().predict(batch(unlabelled(records(9, seed=4))))
    return answers.labels.tolist(), answers.scores.tolist(), None if chances is None else chances.tolist()


def test_every_learner_predicts_and_survives_restart(session):
    labels, scores, _ = said(session)
    assert set(labels) <= {0, 1}
    assert len(scores) == 9
    again = session.again()
    assert said(again) == said(session)
    assert again.model().summary() == session.model().summary()


def test_service_reports_experts_of_ensemble(session):
    inside = session.model().experts_and_drifts()
    is_ensemble = type(session.model().learner).__name__ == "StreamClassifier"
    assert bool(inside["experts"]) == is_ensemble
    if is_ensemble:
        assert sum(expert["weight"] for expert in inside["experts"]) == pytest.approx(1.0)
        assert json.dumps(inside, allow_nan=False)


def test_drift_detected_by_windows_is_reported(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(memory="drift", rows="none")))
    for number in range(30):  # the labels are inverted from the middle on
        rows = [
            {**row, "fraud": abs((number >= 15) - row["fraud"])}
            for row in records(100, seed=number, first=100 * number)
        ]
        session.do(Learn("m", batch(rows)))
    drifts = session.model().experts_and_drifts()["drifts"]
    assert drifts == [int(row) for row in session.model().learner.drifts_]
    assert any(row > 1_500 for row in drifts), drifts


def test_every_learner_continues_after_restart_as_without_restart(session):
    more = batch(records(40, seed=6, first=500))
    again = session.again()
    again.do(Learn("m", more))
    session.writer.sessions["m"].engine.learn(more, at=session.clock())
    assert again.model().summary()["digest"] == session.writer.sessions["m"].engine.digest()


def test_every_served_learner_forgets_rows_or_raises(session):
    before = session.model().summary()
    if hasattr(session.model().learner, "forget"):
        gone = session.do(Forget("m", ids=["r3", "r7"]))
        assert gone["forgotten"] == 2
        assert session.model().n_rows == session.again().model().n_rows == 118
        assert said(session.again()) == said(session)
        return
    with pytest.raises(SteelyardError, match="cannot forget rows; nothing was changed"):
        session.do(Forget("m", ids=["r3", "r7"]))
    assert session.model().summary() == before
    assert session.again().model().summary() == before


def test_alarms_of_all_published_copies_are_counted(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    learner = {"class": "StreamClassifier", "threshold": {"alarms": 0.1}}
    session.do(Put("m", spec(learner=learner)))
    n_alarms = 0
    for number in range(4):
        session.do(Learn("m", batch(records(60, seed=number, first=60 * number))))
        answers, _ = session.model().predict(batch(unlabelled(records(50, seed=number + 9))))
        n_alarms += sum(label == 1 for label in answers.labels.tolist())
    realised = session.model().learner.realised_rates_[0]
    assert (realised.n_rows, realised.n_events) == (200, n_alarms)
