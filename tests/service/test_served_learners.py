"""Every learner of a spec is served: it learns, answers, comes back, and forgets or says why not."""

from __future__ import annotations

import json

import pytest

from steelyard.exceptions import SteelyardError
from steelyard.service.commands import Forget, Learn, Put
from steelyard.service.spec import LEARNERS
from tests.service.data import records, spec
from tests.service.sessions import ModelSession, batch
from tests.service.test_wire import unlabelled

# No seed is said: what a recovery draws must be what was drawn.
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
    answers, chances = session.model().ask(batch(unlabelled(records(9, seed=4))))
    return answers.labels.tolist(), answers.scores.tolist(), None if chances is None else chances.tolist()


def test_it_answers_and_comes_back_as_it_was(session):
    labels, scores, _ = said(session)
    assert set(labels) <= {0, 1}
    assert len(scores) == 9
    again = session.again()
    assert said(again) == said(session)
    assert again.model().facts() == session.model().facts()


def test_what_is_inside_is_told(session):
    inside = session.model().inside()
    committee = type(session.model().learner).__name__ == "StreamClassifier"
    assert bool(inside["experts"]) == committee
    if committee:
        assert sum(expert["weight"] for expert in inside["experts"]) == pytest.approx(1.0)
        assert json.dumps(inside, allow_nan=False)


def test_drift_that_windows_have_seen_is_told(tmp_path):
    session = ModelSession(tmp_path / "store.db")
    session.do(Put("m", spec(memory="drift", rows="none")))
    for number in range(30):  # from the middle on the labels are the other way round
        rows = [
            {**row, "fraud": abs((number >= 15) - row["fraud"])}
            for row in records(100, seed=number, first=100 * number)
        ]
        session.do(Learn("m", batch(rows)))
    drifts = session.model().inside()["drifts"]
    assert drifts == [int(row) for row in session.model().learner.drifts_]
    assert any(row > 1_500 for row in drifts), drifts


def test_after_coming_back_it_goes_on_as_if_it_had_never_stopped(session):
    more = batch(records(40, seed=6, first=500))
    again = session.again()
    again.do(Learn("m", more))
    session.writer._sessions["m"].engine.learn(more, at=session.clock())
    assert again.model().facts()["digest"] == session.writer._sessions["m"].engine.digest()


def test_it_forgets_or_says_that_it_cannot(session):
    before = session.model().facts()
    if hasattr(session.model().learner, "forget"):
        gone = session.do(Forget("m", ids=["r3", "r7"]))
        assert gone["forgotten"] == 2
        assert session.model().n_rows == session.again().model().n_rows == 118
        assert said(session.again()) == said(session)
        return
    with pytest.raises(SteelyardError, match="cannot forget rows; nothing was changed"):
        session.do(Forget("m", ids=["r3", "r7"]))
    assert session.model().facts() == before
    assert session.again().model().facts() == before
