"""Any number of threads may predict while one thread learns, and concurrent updates are serialized."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from steelyard import EnclosingClassifier, IncrementalSVC, ProximalSVC
from steelyard.persistence import from_bytes, to_bytes
from tests.safety.subjects import SUBJECTS, X, Y
from tests.safety.threads import learn_concurrently, predict_while_learning, switching_often

STREAMING = [subject for subject in SUBJECTS if hasattr(subject.learner, "partial_fit")]


# ProximalSVC(C="auto") selects C at prediction, so its states depend on the time of predictions.
DETERMINISTIC = [subject for subject in SUBJECTS if subject.name != "ProximalSVC auto"]


@pytest.mark.parametrize("subject", DETERMINISTIC, ids=lambda subject: subject.name)
def test_predictions_during_learning_come_from_one_consistent_state(subject):
    assert predict_while_learning(subject, seconds=0.3).predictions > 0


@pytest.mark.parametrize("subject", STREAMING, ids=lambda subject: subject.name)
def test_concurrent_partial_fit_learns_every_row_once(subject):
    model, rows = learn_concurrently(subject)
    if hasattr(model, "class_count_"):
        assert float(np.sum(model.class_count_)) == len(subject.start()[1]) + len(rows)
    expected = subject.fitted_copy()
    for row in rows:
        expected.partial_fit(*row)
    if hasattr(model, "n_rows_"):  # a window keeps the same number of rows for any order of the updates
        assert model.n_rows_ == expected.n_rows_
    if subject.learner._traits.exact:
        np.testing.assert_allclose(
            model.decision_function(subject.questions),
            expected.decision_function(subject.questions),
            rtol=1e-6,
            atol=1e-7,
        )


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), to_bytes])
@pytest.mark.parametrize("learner", [ProximalSVC(), IncrementalSVC(gamma=0.4)], ids=repr)
def test_copy_during_learning_is_consistent(learner, make_copy):
    model = learner.fit(X[:40], Y[:40])
    stop = threading.Event()

    def learn():
        while not stop.is_set():
            model.update(add=(X[40:48], Y[40:48]))
            model.forget(X[40:48], Y[40:48])

    thread = threading.Thread(target=learn)
    with switching_often():
        thread.start()
        try:
            for _ in range(30):
                copied = make_copy(model)
                copied = from_bytes(copied) if isinstance(copied, bytes) else copied
                assert copied.class_count_.sum() in {40, 48}
                assert np.isfinite(copied.decision_function(X[:3])).all()
        finally:
            stop.set()
            thread.join()


def test_merging_two_learners_into_each_other_in_two_threads_does_not_deadlock():
    kinds = (
        lambda label: ProximalSVC().fit(X[:20], Y[:20]),
        lambda label: EnclosingClassifier().fit(X[:20], np.full(20, label)),
    )
    for make in kinds:
        left, right = make(0), make(1)

        def merge(learner, other):
            for _ in range(20):
                try:
                    learner.merge(other)
                except ValueError:  # both already have the same classes
                    return

        threads = [
            threading.Thread(target=merge, args=pair, daemon=True) for pair in ((left, right), (right, left))
        ]
        with switching_often():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60.0)
        assert not any(thread.is_alive() for thread in threads)


def test_import_without_gil_raises_import_error():
    code = "import sys; sys._is_gil_enabled = lambda: False; import steelyard._native"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: steelyard needs the global interpreter lock" in done.stderr
    assert "hint: remove PYTHON_GIL=0" in done.stderr
