"""Label frequency experts: runs of rows without a new label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import StreamClassifier
from steelyard.ensemble.experts import EXPERTS
from steelyard.ensemble.scores import LabelRun
from steelyard.ensemble.settings import SETTINGS
from steelyard.persistence import from_bytes, to_bytes


def _reference_lengths(scores):
    """Return for each row the number of rows of its run up to the end of its block, row by row."""
    blocks_done, lengths = [], []
    for block in scores:
        blocks_done.extend(block)
        for row in range(len(blocks_done) - len(block), len(blocks_done)):
            begin = end = row
            while begin and blocks_done[begin - 1] == blocks_done[row]:
                begin -= 1
            while end + 1 < len(blocks_done) and blocks_done[end + 1] == blocks_done[row]:
                end += 1
            lengths.append(end + 1 - begin)
    return lengths


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=3), max_size=4)
)
def test_label_run_marks_rows_in_runs_longer_than_limit(drawn):
    blocks = [np.repeat([x for x, _ in runs], [n for _, n in runs]).astype(float) for runs in drawn]
    run, marked = LabelRun(), []
    for block in blocks:
        run, is_long = LabelRun.from_state(run.get_state()).after(block[:, None, None])
        marked.extend(is_long.tolist())
    lengths = _reference_lengths([block.tolist() for block in blocks])
    assert marked == [length > SETTINGS.max_label_run_rows for length in lengths]
    assert run.n_rows == (lengths[-1] if lengths else 0)


def _model_of_a_burst(seed):
    """Return a model that learned runs of labels without delay, then 400 rows whose labels came in bursts."""
    rng = np.random.default_rng(seed)
    y = (rng.random(800) < 0.05).astype(int)
    y[:400], y[799] = 0, 1
    for begin in (60, 180, 320):
        y[begin : begin + 40] = 1
    X = rng.normal(size=(800, 2)) + 0.3 * y[:, None]
    model = StreamClassifier()
    for begin in range(0, 400, 5):
        model.partial_fit(X[begin : begin + 5], y[begin : begin + 5])
    assert _label_weight(model) > 0.9
    model.predict(X[400:])
    for begin in range(400, 800, 100):
        model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    return model, X, y


def _label_weight(model):
    names = {config.name for config in EXPERTS if not config.make(config).uses_features}
    return sum(expert.weight for expert in model.explain().experts if expert.name in names)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_label_frequency_experts_lose_their_weight_when_labels_arrive_in_bursts(seed):
    model, _, _ = _model_of_a_burst(seed)
    assert _label_weight(model) == 0.0


def test_weights_after_forget_are_the_same_for_a_restored_model():
    model, X, y = _model_of_a_burst(2)
    restored = from_bytes(to_bytes(model))
    for known in (model, restored):
        known.forget(X[:1], y[:1])
    assert _label_weight(restored) == _label_weight(model) == 0.0
    np.testing.assert_array_equal(restored.decision_function(X), model.decision_function(X))
