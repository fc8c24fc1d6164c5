"""Every learner of a spec is served: it learns, answers, comes back, and forgets or says why not."""

from __future__ import annotations

import json

import pytest

from steelyard.exceptions import SteelyardError
from steelyard.service.requests import Forget, Learn, Put
from steelyard.service.spec import LEARNERS
from tests.service.data import records, spec
from tests.service.desks import Desk, batch
from tests.service.test_wire import unlabelled

# No seed is said: what a recovery draws must be what was drawn.
SERVED = [*({"class": name} for name in LEARNERS), {"class": "ProximalSVC", "features": 50}]


@pytest.fixture(params=SERVED, ids=lambda learner: "-".join(map(str, learner.values())))
def desk(request, tmp_path):
    desk = Desk(tmp_path / "store.db")
    desk.do(Put("m", spec(learner=request.param)))
    rows = records(120)
    for begin in range(0, 120, 40):
        desk.do(Learn("m", batch(rows[begin : begin + 40])))
    return desk


def said(desk):
    answers, chances = desk.model().ask(batch(unlabelled(records(9, seed=4))))
    return answers.labels.tolist(), answers.scores.tolist(), None if chances is None else chances.tolist()


def test_it_answers_and_comes_back_as_it_was(desk):
    labels, scores, _ = said(desk)
    assert set(labels) <= {0, 1}
    assert len(scores) == 9
    again = desk.again()
    assert said(again) == said(desk)
    assert again.model().facts() == desk.model().facts()


def test_what_is_inside_is_told(desk):
    inside = desk.model().inside()
    committee = type(desk.model().learner).__name__ == "StreamClassifier"
    assert bool(inside["experts"]) == committee
    if committee:
        assert sum(expert["weight"] for expert in inside["experts"]) == pytest.approx(1.0)
        assert json.dumps(inside, allow_nan=False)


def test_drift_that_windows_have_seen_is_told(tmp_path):
    desk = Desk(tmp_path / "store.db")
    desk.do(Put("m", spec(memory="drift", rows="none")))
    for number in range(30):  # from the middle on the labels are the other way round
        rows = [
            {**row, "fraud": abs((number >= 15) - row["fraud"])}
            for row in records(100, seed=number, first=100 * number)
        ]
        desk.do(Learn("m", batch(rows)))
    drifts = desk.model().inside()["drifts"]
    assert drifts == [int(row) for row in desk.model().learner.drifts_]
    assert any(row > 1_500 for row in drifts), drifts


def test_after_coming_back_it_goes_on_as_if_it_had_never_stopped(desk):
    more = batch(records(40, seed=6, first=500))
    again = desk.again()
    again.do(Learn("m", more))
    desk.scribe._desks["m"].engine.learn(more, at=desk.clock())
    assert again.model().facts()["digest"] == desk.scribe._desks["m"].engine.digest()


def test_it_forgets_or_says_that_it_cannot(desk):
    before = desk.model().facts()
    if hasattr(desk.model().learner, "forget"):
        gone = desk.do(Forget("m", ids=["r3", "r7"]))
        assert gone["forgotten"] == 2
        assert desk.model().n_rows == desk.again().model().n_rows == 118
        assert said(desk.again()) == said(desk)
        return
    with pytest.raises(SteelyardError, match="cannot forget rows; nothing was changed"):
        desk.do(Forget("m", ids=["r3", "r7"]))
    assert desk.model().facts() == before
    assert desk.again().model().facts() == before
