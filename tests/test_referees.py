"""The benchmark of published results: every referee runs on generated rows, and the table is correct."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

ACCURACY = Path(__file__).parents[1] / "benchmarks" / "accuracy"
needs_stream_learn = pytest.mark.skipif(
    importlib.util.find_spec("strlearn") is None, reason="stream-learn, a peer, is not installed"
)


@pytest.fixture
def referees(monkeypatch):
    pytest.importorskip("river", reason="its models are peers")
    pytest.importorskip("pyarrow", reason="the payments are a Parquet file")
    monkeypatch.syspath_prepend(str(ACCURACY))
    known = set(sys.modules)
    yield importlib.import_module("referees")
    for name in set(sys.modules) - known:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == ACCURACY:
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore")  # warnings of other packages
def test_every_referee_runs_on_generated_rows(referees, tmp_path):
    referees.write_stand_ins(tmp_path, n_rows=100)
    names = ["river", "heart", "handbook"]
    figures = referees.run(names, referees.Options(tmp_path, quick=True))
    ours = {one.case for one in figures if one.ours}
    assert {case.partition(":")[0] for case in ours} == {"river", "FLamby heart", "Handbook"}
    assert len(ours) == 8
    assert all(0.0 <= one.value <= 1.0 for one in figures)
    assert all(one.case in referees.table(figures) for one in figures)


@needs_stream_learn
@pytest.mark.filterwarnings("ignore")
def test_ensembles_of_stream_learn_run_on_generated_rows(referees):
    figures = list(referees.survey(referees.Options(quick=True)))
    assert {one.method.partition("'")[0] for one in figures} == {"StreamClassifier", "stream-learn"}
    assert all(0.0 <= one.value <= 1.0 for one in figures)


def test_referee_without_data_is_reported_with_the_reason(referees):
    figures = referees.run(["handbook"], referees.Options())
    assert "not run: --data has no fraud_handbook.parquet" in referees.table(figures)


def test_table_lists_cases_in_which_stream_classifier_is_not_first(referees):
    figure = referees.Figure
    figures = [
        figure("a: F1", "StreamClassifier", 0.8, ours=True),
        figure("a: F1", "peer, printed", 0.9, referees.PRINTED),
        figure("a: F1", "peer", 0.7),
        figure("b: F1", "StreamClassifier", 0.9, ours=True),
        figure("b: F1", "peer", 0.9),
    ]
    lines = referees.table(figures).splitlines()
    assert lines[0] == "Not first in 1 of 2 cases: a: F1."
    assert lines[4] == "| a: F1 | .800 | peer .900 | peer .700 | 2 of 3 |"
    assert lines[5] == "| b: F1 | **.900** | none | peer .900 | 1 of 2 |"


def test_first_paragraph_of_the_page_counts_the_cases_in_which_we_are_not_first():
    page = (ACCURACY.parents[1] / "docs" / "referees.md").read_text(encoding="utf-8")
    table = page.partition("## Run for this page")[2].partition("The peers of a case")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\|.*\d of \d", line)]
    ranks = [int(cells[4].split(" of ")[0]) for cells in lines]
    behind = sum(rank > 1 for rank in ranks)
    assert f"It is **not first** in {behind} of the {len(ranks)} cases" in page
    assert [cells[1].startswith("**") for cells in lines] == [rank == 1 for rank in ranks]  # bold: first


def test_referee_predicts_rows_before_it_learns_them(referees):
    class Recorder(GaussianNB):
        learned = 0

        def predict(self, X):
            assert X[0, 0] == Recorder.learned
            return np.ones(len(X))

        def partial_fit(self, X, y):
            Recorder.learned += len(X)

    rows = np.arange(5.0)[:, None]
    predicted = referees.predictions_row_by_row(Recorder(), rows, np.zeros(5, dtype=int))
    assert predicted.tolist() == [0, 1, 1, 1, 1]


@needs_stream_learn
def test_stream_learn_ensemble_waits_for_both_classes(referees):
    peers = importlib.import_module("stream_peers")
    learner = peers.StreamLearnEnsemble("OOB")
    rng = np.random.default_rng(0)
    labels = np.zeros(20, dtype=np.int64)
    learner.learn(rng.normal(size=(20, 2)), labels)
    assert not labels.any()  # copied, because stream-learn modifies its input
    assert (learner.scores(np.zeros((3, 2))) == 0.5).all()
    learner.learn(rng.normal(size=(2, 2)) + 3.0, np.ones(2, dtype=np.int64))
    assert learner.scores(np.full((1, 2), 3.0))[0] > 0.5


def test_naive_bayes_leaves_out_a_chunk_without_drawn_rows(referees):
    peers = importlib.import_module("stream_peers")
    rows, labels = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    learner = peers.DrawnNaiveBayes().partial_fit(rows, labels, [0, 1])
    means = learner.theta_.copy()
    learner.partial_fit(rows + 9.0, labels, sample_weight=np.zeros(4))
    assert (learner.theta_ == means).all()
