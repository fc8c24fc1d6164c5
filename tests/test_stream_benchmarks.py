"""Stream benchmarks: rows are scored before learning, results are kept, and tables are correct."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score

from steelyard import AdaptiveThresholdClassifier

ACCURACY = Path(__file__).parents[1] / "benchmarks" / "accuracy"
MODULES = ("moa_client", "moa_worker", "stream_cells", "stream_peers", "stream_tables", "streams", "survey")


@pytest.fixture
def bench(monkeypatch):
    pytest.importorskip("river", reason="the peers of these benchmarks are imported from there")
    monkeypatch.syspath_prepend(str(ACCURACY))
    import moa_client
    import moa_worker
    import stream_cells
    import stream_peers
    import stream_tables
    import survey

    parts = {"client": moa_client, "worker": moa_worker, "cells": stream_cells, "peers": stream_peers}
    yield SimpleNamespace(**parts, tables=stream_tables, survey=survey)
    for name in (*MODULES, "stream_data"):
        sys.modules.pop(name, None)


def rows(n=1_200, share=0.2, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.int64)
    return rng.normal(size=(n, 3)) + y[:, None], y


@pytest.fixture
def file(tmp_path):
    X, y = rows()
    np.savez(tmp_path / "rows.npz", X=X, raw=X, y=y, kinds=np.zeros(3, dtype=np.int64))
    return tmp_path / "rows.npz"


class Watched:
    """Model whose score is the first column. It records its number of learned rows at each prediction."""

    own_threshold = 0.5
    asked: list[tuple[int, int]]

    def __init__(self):
        self.n_asked = self.n_learned = 0
        Watched.asked = []

    def rows_until_change(self):
        return 0

    def scores(self, X):
        Watched.asked.append((self.n_asked, self.n_learned))
        self.n_asked += len(X)
        return X[:, 0]

    def learn(self, X, y):
        self.n_learned += len(y)


class Broken(Watched):
    def learn(self, X, y):
        raise RuntimeError("no tree grows here")


# -- a run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "late"), [(100, 0), (1, 0), (100, 500), (70, 130)])
def test_rows_are_scored_before_learning_and_labels_arrive_with_given_delay(bench, file, chunk, late):
    watched = bench.peers.Contender("watched", Watched)
    bench.cells.run(watched, file, bench.cells.Setting(1_200, chunk, late))
    assert Watched.asked == [(begin, max(0, begin - late)) for begin in range(0, 1_200, chunk)]


@pytest.mark.parametrize(("chunk", "late"), [(1, 0), (100, 0), (1, 120), (70, 130)])
def test_refit_wrapper_gives_same_scores_for_one_batch_and_for_chunks(bench, file, chunk, late):
    class Counted(bench.peers.Refitted):
        n_calls = 0

        def scores(self, X):
            Counted.n_calls += 1
            return super().scores(X)

    class CountedSingleRows(Counted):
        def rows_until_change(self):
            return 0

    def scores(kind):
        Counted.n_calls = 0
        contender = bench.peers.Contender(
            kind.__name__, lambda: kind(lambda: SGDClassifier(loss="log_loss", random_state=0), 300)
        )
        given, *_ = bench.cells.run(contender, file, bench.cells.Setting(1_200, chunk, late))
        return given, Counted.n_calls

    (together, few), (one_by_one, many) = scores(Counted), scores(CountedSingleRows)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)
    assert few < many
    assert len(np.unique(together)) > 600
    assert (together[:100] == 0.5).all()  # no fit on the first few rows


@pytest.mark.parametrize("chunk", [1, 50])
def test_adaptive_threshold_equals_adaptive_threshold_classifier(bench, chunk):
    X, y = rows(600)
    model = AdaptiveThresholdClassifier(SGDClassifier(loss="log_loss", random_state=0))
    scores, said = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
    for begin in range(0, len(y), chunk):
        part = slice(begin, begin + chunk)
        if begin:
            scores[part] = model.estimator_.decision_function(X[part])
            said[part] = model.predict(X[part]) == 1
        model.partial_fit(X[part], y[part], classes=[0, 1])
    ours = bench.cells.moved(scores, 0.0, y, bench.cells.Setting(600, chunk), looks=1)
    np.testing.assert_array_equal(ours, said)


def test_windowed_auc_and_gmean_use_rows_of_the_window(bench):
    X, y = rows(2_000)
    y[500:1_000] = 0  # windows with a single class are ignored
    answers = X[:, 0] > 0.5
    aucs, gmeans = [], []
    for begin in (0, 1_000, 1_500):
        part = slice(begin, begin + 500)
        aucs.append(roc_auc_score(y[part], X[part, 0]))
        hits, alarms = answers[part][y[part] == 1].mean(), answers[part][y[part] == 0].mean()
        gmeans.append(np.sqrt(hits * (1 - alarms)))
    found = bench.cells.window_means(y, X[:, 0], [answers, ~answers])["500"]
    np.testing.assert_allclose(found[:2], [np.mean(aucs), np.mean(gmeans)], atol=1e-6)


# -- stored results -----------------------------------------------------------------------------------


def test_interrupted_run_continues_where_it_stopped(bench, file, tmp_path):
    setting, watched = bench.cells.Setting(1_200), bench.peers.Contender("watched", Watched)
    first = bench.cells.measured(bench.cells.Cells(tmp_path), "s", watched, setting, file)
    with (tmp_path / "cells.jsonl").open("a") as lines:
        lines.write('{"stream": "s", "conten')  # an incomplete line of a killed process
    cells = bench.cells.Cells(tmp_path)
    never = bench.peers.Contender("watched", lambda: pytest.fail("it was run again"))
    assert bench.cells.measured(cells, "s", never, setting, file) == first
    other = bench.cells.Setting(1_200, late=500)
    assert bench.cells.measured(cells, "s", watched, other, file)["late"] == 500
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    assert [json.loads(line)["late"] for line in lines] == [0, 500]


def test_repeated_run_replaces_earlier_result(bench, file, tmp_path):
    setting, cells = bench.cells.Setting(1_200), bench.cells.Cells(tmp_path)
    broken, watched = (bench.peers.Contender("one", make) for make in (Broken, Watched))
    assert "failed" in bench.cells.measured(cells, "s", broken, setting, file)
    assert "failed" in bench.cells.measured(cells, "s", watched, setting, file), "there is a line"
    again = bench.cells.measured(cells, "s", watched, setting, file, again=True)
    assert "windows" in again
    assert bench.cells.Cells(tmp_path).get("s", "one", setting) == again


def test_missing_package_raises_and_stores_no_result(bench, file, tmp_path):
    def make():
        raise ModuleNotFoundError("no such package")

    cells = bench.cells.Cells(tmp_path)
    with pytest.raises(ModuleNotFoundError):
        bench.cells.measured(cells, "s", bench.peers.Contender("x", make), bench.cells.Setting(1_200), file)
    assert cells.get("s", "x", bench.cells.Setting(1_200)) is None


def test_failed_candidate_is_reported_and_others_are_kept(bench, file, tmp_path):
    setting, cells = bench.cells.Setting(1_200), bench.cells.Cells(tmp_path)
    found = {}
    for name, make in ((bench.peers.OURS, Watched), ("broken", Broken)):
        contender = bench.peers.Contender(name, make)
        found[name] = {"s": bench.cells.measured(cells, "s", contender, setting, file)}
    assert bench.tables.missing(found, ["s", "t"]) == [
        *(f"{bench.peers.OURS} on t: not run", "broken on s: RuntimeError: no tree grows here"),
        "broken on t: not run",
    ]
    assert bench.tables.complete(found, ["s"]) == []
    assert bench.tables.complete({bench.peers.OURS: found[bench.peers.OURS]}, ["s", "t"]) == ["s"]


def test_ranks_and_paired_differences_equal_manual_computation(bench):
    figures = {bench.peers.OURS: (0.9, 0.7), "forest": (0.8, 0.75), "tree": (0.5, 0.6)}
    cells = {
        name: {s: {"windows": {"500": [auc, 0.1, auc]}, "us": 7.0} for s, auc in zip("ab", aucs, strict=True)}
        for name, aucs in figures.items()
    }
    lines = bench.tables.table(cells, ["a", "b"], 500).splitlines()
    assert lines[2].startswith("| StreamClassifier | 0.800 | 1.5 |  | 0.100 | 0.800 | 1.5 |")
    assert lines[3].startswith("| forest | 0.775 | 1.5 | +0.025 ± 0.075 |")
    assert lines[4].startswith("| tree | 0.550 | 3.0 | +0.250 ± 0.150 |")
    assert "| b | 0.700 | 0.750 | forest |" in bench.tables.by_stream(cells, "ab", ["forest", "tree"], 500)


def test_targets_are_reported_as_met_or_missed(bench):
    peers = ["balanced forest, last 5,000", "LightGBM, last 5,000", "MOA's ARF, 10 trees"]
    figures = {bench.peers.OURS: (0.90, 0.80, 50.0), peers[0]: (0.87, 0.70, 200.0)}
    figures |= {peers[1]: (0.80, 0.84, 60.0), peers[2]: (0.60, 0.60, 300.0)}
    figures |= {"ProximalSVC": (0.99, 0.99, 1.0)}  # our other models do not count as peers
    cells = {
        name: {"a": {"windows": {"500": [a, 0, a]}, "us": us}, "b": {"windows": {"500": [b, 0, b]}, "us": us}}
        for name, (a, b, us) in figures.items()
    }
    lines = bench.tables.verdicts(cells, ["a", "b"], peers, 500).splitlines()
    assert lines[0] == ("- holds: AUC 0.8500, best peer 0.8200 (LightGBM, last 5,000): +0.0300, asked +0.02")
    assert lines[2] == "- holds: mean rank in AUC 1.50, best peer 2.00 (LightGBM, last 5,000)"
    assert lines[4] == (
        "- missed: streams more than 0.03 behind the best of forest, LightGBM, ARF in AUC: b -0.040 "
        "(worst -0.040)"
    )
    assert [line.split(":")[0] for line in lines[5:]] == ["- holds", "- holds"]
    for cell in cells[bench.peers.OURS].values():
        cell["us"] = 101.0
    dearer = bench.tables.verdicts(cells, ["a", "b"], peers, 500).splitlines()
    assert [line.split(":")[0] for line in dearer[5:]] == ["- missed", "- missed"]


# -- MOA ----------------------------------------------------------------------------------------------

FAKE = """
import json, sys
import numpy as np
print("some words of Java")
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    if job["learner"] == "ends":
        sys.exit(3)
    if job["learner"] == "fails":
        print(json.dumps({"failed": "no such learner"}), flush=True)
        continue
    np.save(job["scores"], np.load(job["rows"])["raw"][:, 0] + job["chunk"])
    print(json.dumps({"us": 12.5}), flush=True)
"""


def test_benchmark_worker_returns_scores_or_error(bench, file, tmp_path):
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    with bench.client.MoaClient(sys.executable, script) as client:
        scores, cost = client.scores("first column", file, 4, 0)
        np.testing.assert_array_equal(scores, np.load(file)["X"][:, 0] + 4)
        assert cost == 12.5
        with pytest.raises(bench.client.MoaError, match="no such learner"):
            client.scores("fails", file, 1, 0)
        client.scores("first column", file, 1, 0)
        with pytest.raises(bench.client.MoaError, match="ended with code 3"):
            client.scores("ends", file, 1, 0)


class Counting:
    """MOA learner whose vote is its number of learned rows."""

    def __init__(self):
        self.n = 0

    def getVotesForInstance(self, row):
        return [100_000 - self.n, self.n]

    def trainOnInstance(self, row):
        assert row == self.n
        self.n += 1


@pytest.mark.parametrize(("chunk", "late"), [(1, 0), (100, 0), (100, 500)])
def test_benchmark_worker_scores_rows_before_learning(bench, file, tmp_path, chunk, late):
    moa = SimpleNamespace(learner=lambda *_: Counting(), rows=lambda X, *_: list(range(len(X))))
    job = {"learner": "", "rows": file, "scores": tmp_path / "s.npy", "chunk": chunk, "late": late}
    bench.worker.score(job, moa)
    known = np.round(np.load(tmp_path / "s.npy") * 100_000).astype(int)
    assert known.tolist() == [max(0, row // chunk * chunk - late) for row in range(1_200)]


@pytest.mark.parametrize(
    ("votes", "share"),
    [([], 0.5), ([3.0], 0.0), ([1.0, 3.0], 0.75), ([0.0, 0.0], 0.5), ([float("nan"), 2.0], 1.0)],
)
def test_votes_of_a_model_are_converted_to_positive_class_share(bench, votes, share):
    assert bench.worker.shares(votes, 2) == [1.0 - share, share]


# -- the survey ---------------------------------------------------------------------------------------


def test_benchmark_survey_has_experiments_on_more_than_40_streams(bench):
    survey = bench.survey
    assert len(survey.STREAMS) == 88
    assert [survey.EXPERIMENTS[f"ratio {ratio}"].shares for ratio in (1, 10, 100)] == [
        (0.5,),
        (0.1,),
        (0.01,),
    ]
    assert survey.EXPERIMENTS["flipping"].shares[0] == 0.01
    assert survey.EXPERIMENTS["flipping"].shares[-1] == 0.99
    stages = survey.EXPERIMENTS["sudden drift, ratio 100"].stages("Agrawal")
    assert [cli.split()[-1] for cli, _ in stages] == list("12345")
    same = survey.EXPERIMENTS["flipping"].stages("random tree")
    assert len({cli.split("-r ")[1] for cli, _ in same}) == 1, "one concept"
    assert len({cli for cli, _ in same}) == 11, "and other rows of it in every stage"


def test_stages_of_generated_stream_change_abruptly_or_gradually(bench):
    rng = np.random.default_rng(0)
    sudden = bench.worker.stage_of_rows(5_000, 5, 1, rng)
    assert (np.abs(np.bincount(sudden) - 1_000) <= 5).all()
    assert (np.diff(sudden) < 0).sum() <= 4
    fading = bench.worker.stage_of_rows(5_000, 5, 500, rng)
    assert set(fading[900:1_100]) == {0, 1}
    assert 0.35 < fading[900:1_100].mean() < 0.65
    assert (fading[200:500] == 0).mean() > 0.95


class Sawtooth:
    """Generator whose class is 1 in every third row. The only feature is the row number."""

    def __init__(self, start):
        self.n = start

    def nextInstance(self):
        self.n += 1
        values = [float(self.n), float(self.n % 3 == 0)]
        return SimpleNamespace(getData=lambda: SimpleNamespace(toDoubleArray=lambda: values))


def test_generated_rows_have_class_shares_of_their_stage(bench, tmp_path):
    moa = SimpleNamespace(generator=lambda cli: Sawtooth(int(cli)), kinds=lambda _: [0])
    job = {"stages": [["0", 0.01], ["1000000", 0.9]], "n_rows": 4_000, "width": 1, "seed": 1}
    bench.worker.generate({**job, "rows": tmp_path / "made.npz"}, moa)
    made = np.load(tmp_path / "made.npz")
    assert abs(made["y"][:2_000].mean() - 0.01) < 0.01
    assert abs(made["y"][2_000:].mean() - 0.9) < 0.03
    np.testing.assert_array_equal(made["raw"][:, 0] % 3 == 0, made["y"] == 1)
    assert (made["raw"][:1_990] < 1_000_000).all()
    assert (made["raw"][2_010:] > 1_000_000).all()


def test_categories_are_one_hot_encoded_and_numbers_kept(bench):
    raw = np.array([[1.5, 2.0, 1.0], [2.5, 0.0, 0.0]])
    found = bench.survey.indicators(raw, np.array([0, 3, 2]))
    assert found.tolist() == [[1.5, 0.0, 0.0, 1.0, 1.0], [2.5, 1.0, 0.0, 0.0, 0.0]]
