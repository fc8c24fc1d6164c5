"""fit, predict, forget, merge, inspect, evaluate and tune on saved models."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import steelyard
from steelyard import ProximalSVC
from steelyard.cli import main
from tests.runner import cli_runner

PLANES = ("--model", "proximal")  # merged proximal models equal a fit on all rows


@pytest.fixture
def run():
    def invoke(*arguments):
        result = cli_runner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    return invoke


def _frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    frame["kind"] = np.array(["x", "z"] if seed == 0 else ["z", "w"])[rng.integers(0, 2, size=n)]
    frame["y"] = (frame["a"] + (frame["kind"] == "z") > 1.2).astype(int)
    return frame


@pytest.fixture
def files(tmp_path):
    first, second = _frame(seed=0), _frame(seed=1)
    first.to_csv(tmp_path / "first.csv", index=False)
    second.to_parquet(tmp_path / "second.parquet")
    pd.concat([first, second]).to_csv(tmp_path / "both.csv", index=False)
    return tmp_path


def _scores(run, model, rows):
    lines = run("predict", model, rows, "--json").splitlines()
    return np.array([json.loads(line)["score_1"] for line in lines])


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_same_seed_gives_same_model(run, files, command):
    grid = ("--grid", "C=1") if command == "tune" else ()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        kind = ("--model", "koil", "--seed", seed, *grid)
        run(command, files / "first.csv", "--target", "y", *kind, "-o", files / name)
    a, b, c = (_scores(run, files / name, files / "first.csv") for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_predict_prints_decision_function_of_the_learner(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    frame = _frame(seed=0)
    X = np.column_stack(
        [frame["a"], frame["b"], frame["kind"] == frame["kind"][0], frame["kind"] != frame["kind"][0]]
    )
    expected = ProximalSVC().fit(X, frame["y"]).decision_function(X)
    np.testing.assert_allclose(_scores(run, files / "m", files / "first.csv"), expected, atol=1e-9)


def test_predict_without_target_writes_csv_and_parquet(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    _frame(5).drop(columns="y").to_csv(files / "rows.csv", index=False)
    run("predict", files / "m", files / "rows.csv", "-o", files / "out.csv")
    run("predict", files / "m", files / "rows.csv", "-o", files / "out.parquet")
    as_csv, as_parquet = pd.read_csv(files / "out.csv"), pd.read_parquet(files / "out.parquet")
    assert as_csv.columns.tolist() == ["row", "label", "score_0", "score_1"]
    pd.testing.assert_frame_equal(as_csv, as_parquet)


def test_fit_continue_equals_fit_on_all_rows(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    run("fit", files / "second.parquet", "--continue", files / "a", "-o", files / "ab")
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "both")
    scores = [_scores(run, files / name, files / "both.csv") for name in ("ab", "both")]
    np.testing.assert_allclose(*scores, atol=1e-9)


def test_merge_with_different_categories_equals_fit_on_all_rows(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    run("fit", files / "second.parquet", "--target", "y", *PLANES, "-o", files / "b")
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "both")
    run("merge", files / "b", files / "a", "-o", files / "c")
    scores = [_scores(run, files / name, files / "both.csv") for name in ("c", "both")]
    np.testing.assert_allclose(*scores, atol=1e-9)


def test_forget_equals_fit_without_forgotten_rows(run, files):
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "m")
    out = json.loads(run("forget", files / "m", files / "second.parquet", "--json"))
    assert out["forgot"] == 600
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    scores = [_scores(run, files / name, files / "first.csv") for name in ("m", "a")]
    np.testing.assert_allclose(*scores, atol=1e-7)


def test_forget_unknown_rows_is_an_error_and_keeps_model(files):
    cli_runner().invoke(
        main, ["fit", str(files / "first.csv"), "--target", "y", *PLANES, "-o", str(files / "m")]
    )
    before = (files / "m").read_bytes()
    result = cli_runner().invoke(main, ["forget", str(files / "m"), str(files / "both.csv")])
    assert result.exit_code == 1
    assert "nothing was changed" in result.stderr
    assert (files / "m").read_bytes() == before


def test_inspect_lists_classes_features_size_and_history(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m", "--set", "C=5")
    facts = json.loads(run("inspect", files / "m", "--json"))
    assert facts["class"] == "ProximalSVC"
    assert facts["parameters"]["C"] == 5
    assert sum(facts["classes"].values()) == 600
    assert facts["telling_features"][0]["feature"] == "a"
    assert facts["bytes"] == (files / "m").stat().st_size
    assert [entry["what"] for entry in facts["history"]] == ["learned"]
    assert "telling" not in run("inspect", files / "m").splitlines()[0]


def test_inspect_lists_mean_contributions_of_the_ensemble(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1200, 4)), columns=list("abcd"))
    frame["y"] = ((frame.b**2 + frame.d**2 > 1.5) & (frame.b**2 + frame.d**2 < 4)).astype(int)
    frame.to_csv(tmp_path / "ring.csv", index=False)
    run("fit", tmp_path / "ring.csv", "--target", "y", "-o", tmp_path / "m")
    features = json.loads(run("inspect", tmp_path / "m", "--json"))["telling_features"]
    assert {line["feature"] for line in features[:2]} == {"b", "d"}
    assert features[1]["importance"] > 2 * features[2]["importance"]
    assert "importance" in run("inspect", tmp_path / "m")


def test_predict_explain_writes_the_largest_contributions(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    plain = run("predict", files / "m", files / "first.csv", "--limit", 5)
    lines = run("predict", files / "m", files / "first.csv", "--limit", 5, "--explain").splitlines()
    assert [line.startswith(other) for line, other in zip(lines, plain.splitlines(), strict=True)] == [
        True
    ] * 6
    assert lines[0].endswith(",explanation")
    assert all(line.count(" = ") == 3 and "a = " in line for line in lines[1:])
    one = run("predict", files / "m", files / "first.csv", "--limit", 5, "--explain", 1).splitlines()
    assert all(line.count(" = ") == 1 for line in one[1:])


def test_predict_explain_explains_the_label_of_the_output(run, files):
    run("fit", files / "first.csv", "--target", "y", "-o", files / "m")
    call = ("predict", files / "m", files / "first.csv", "--limit", 5, "--positive", 1)
    signs = []
    for threshold, label in ((-1e9, 1), (1e9, 0)):
        lines = run(*call, "--threshold", threshold, "--explain", 1).splitlines()[1:]
        signs.append(["(+" in line for line in lines])
        for text in run(*call, "--threshold", threshold, "--explain", "--json").splitlines():
            row = json.loads(text)
            assert row["label"] == label
            assert all(change["label"] != label for change in row["explanation"]["changes"])
    assert signs[0] == [not sign for sign in signs[1]]


def test_predict_explain_json_adds_up_to_the_score(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    for text in run("predict", files / "m", files / "first.csv", "--explain", "--json").splitlines():
        line = json.loads(text)
        explanation = line["explanation"]
        assert explanation["contributions"].keys() == {"a", "b", "kind"}
        total = sum(explanation["contributions"].values()) + explanation["base"]
        assert total == pytest.approx(line["score_1"], abs=1e-9)


def test_evaluate_equals_metrics_of_the_package(run, files):
    from steelyard.metrics import g_mean_score, roc_auc_score

    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    facts = json.loads(run("evaluate", files / "m", files / "second.parquet", "--json"))
    lines = [
        json.loads(line)
        for line in run("predict", files / "m", files / "second.parquet", "--json").splitlines()
    ]
    true = _frame(seed=1)["y"]
    assert facts["g_mean"] == pytest.approx(
        g_mean_score(true, [line["label"] for line in lines], pos_label=1)
    )
    assert facts["auc"] == pytest.approx(roc_auc_score(true, [line["score_1"] for line in lines]))
    assert sum(map(sum, facts["confusion"]["counts"])) == 600


def test_tune_saves_best_candidate_of_grid(run, files):
    out = json.loads(
        run("tune", files / "both.csv", "--target", "y", "--grid", "C=1e-9,1",
            "--grid", "standardize=True,False", "--chunk", 100, "-o", files / "best", "--json")
    )  # fmt: skip
    assert len(out["candidates"]) == 4
    assert out["best"].startswith("C=1,")
    assert steelyard.load(files / "best").estimator.C == 1


def test_predict_with_model_saved_without_table_columns_is_an_error(files):
    steelyard.save(ProximalSVC(), files / "bare")
    result = cli_runner().invoke(main, ["predict", str(files / "bare"), str(files / "first.csv")])
    assert result.exit_code == 1
    assert "without table columns" in result.stderr


# -- rows learned or forgotten twice ------------------------------------------------------------------


def error_of(*arguments):
    result = cli_runner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 1, result.output
    return result.stderr


def test_forget_same_rows_twice_is_an_error(run, files):
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "m")
    run("forget", files / "m", files / "second.parquet")
    before = (files / "m").read_bytes()
    assert "600 rows were already forgotten" in error_of("forget", files / "m", files / "second.parquet")
    assert (files / "m").read_bytes() == before


def test_forgetting_twice_removes_rows_learned_twice(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    for _ in range(2):
        run("fit", files / "second.parquet", "--continue", files / "m", "-o", files / "m")
    run("forget", files / "m", files / "second.parquet")
    run("forget", files / "m", files / "second.parquet", "--again")
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    scores = [_scores(run, files / name, files / "first.csv") for name in ("m", "a")]
    np.testing.assert_allclose(*scores, atol=1e-7)


def test_forget_after_relearning_same_rows_succeeds(run, files):
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "m")
    run("forget", files / "m", files / "second.parquet")
    run("fit", files / "second.parquet", "--continue", files / "m", "-o", files / "m")
    assert json.loads(run("forget", files / "m", files / "second.parquet", "--json"))["forgot"] == 600


def test_forget_receipt_lists_removed_and_remaining_rows(run, files):
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "m")
    receipt = json.loads(run("forget", files / "m", files / "second.parquet", "--json"))
    removed = _frame(seed=1)["y"].value_counts()
    assert receipt["forgot by class"] == {str(label): n for label, n in removed.items()}
    assert sum(receipt["classes"].values()) == 600
    assert receipt["id"].endswith("-600")
    assert receipt["id"] == json.loads(run("inspect", files / "m", "--json"))["history"][-1]["id"]


def test_merge_of_overlapping_models_is_an_error(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    run("fit", files / "second.parquet", "--target", "y", *PLANES, "-o", files / "b")
    run("merge", files / "a", files / "b", "-o", files / "ab")
    for pair in (("a", "a"), ("ab", "b"), ("a", "ab")):
        assert "would count twice" in error_of("merge", *(files / name for name in pair), "-o", files / "no")
    assert not (files / "no").exists()


def test_merge_after_forgetting_shared_rows_succeeds(run, files):
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "both")
    run("fit", files / "second.parquet", "--target", "y", *PLANES, "-o", files / "b")
    run("fit", files / "second.parquet", "--continue", files / "both", "-o", files / "more")
    run("forget", files / "more", files / "second.parquet")
    run("merge", files / "more", files / "b", "-o", files / "merged")


def test_merge_of_model_and_statistics_equals_fit_on_all_rows(run, files):
    run("statistics", files / "first.csv", "--target", "y", "-o", files / "a.stats")
    run("fit", files / "second.parquet", "--target", "y", *PLANES, "-o", files / "b")
    run("merge", files / "b", files / "a.stats", "-o", files / "ab")
    run("fit", files / "both.csv", "--target", "y", *PLANES, "-o", files / "both")
    scores = [_scores(run, files / name, files / "both.csv") for name in ("ab", "both")]
    np.testing.assert_allclose(*scores, atol=1e-9)
    message = error_of("merge", files / "b", files / "a.stats", "-o", files / "ab.stats")
    assert "only statistics can be merged into statistics" in message


def test_merge_of_model_and_statistics_of_same_rows_is_an_error(run, files):
    run("statistics", files / "first.csv", "--target", "y", "-o", files / "a.stats")
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "a")
    assert "would count twice" in error_of("merge", files / "a", files / "a.stats", "-o", files / "no")


def test_removed_combine_command_error_suggests_merge():
    assert "use `steelyard merge`" in error_of("combine", "a.stats", "--set", "C=1", "-o", "m")


def test_inspect_statistics_lists_parts(run, files):
    part = json.loads(
        run("statistics", files / "first.csv", "--target", "y", "-o", files / "a.stats", "--json")
    )
    facts = json.loads(run("inspect", files / "a.stats", "--json"))
    assert facts["kind"] == "statistics"
    assert facts["parts"] == [{"id": part["id"], "source": str(files / "first.csv")}]
    assert sum(facts["classes"].values()) == 600
    assert part["id"] in run("inspect", files / "a.stats")


def test_inspect_model_saved_without_column_names_succeeds(run, files):
    frame = _frame()
    steelyard.save(ProximalSVC(C=3).fit(frame[["a", "b"]].to_numpy(), frame["y"]), files / "bare")
    facts = json.loads(run("inspect", files / "bare", "--json"))
    assert (facts["kind"], facts["class"], facts["features"]) == ("model without columns", "ProximalSVC", 2)
    assert facts["parameters"]["C"] == "3"
    assert "ProximalSVC" in run("inspect", files / "bare")


def test_fit_continue_with_same_rows_prints_note(run, files):
    run("fit", files / "first.csv", "--target", "y", *PLANES, "-o", files / "m")
    words = ["fit", files / "first.csv", "--continue", files / "m", "-o", files / "m"]
    result = cli_runner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0
    assert "the same rows were learned before" in result.stderr
    assert sum(json.loads(run("inspect", files / "m", "--json"))["classes"].values()) == 1200


def test_default_model_is_stream_classifier_and_works_with_every_command(run, files):
    run("fit", files / "first.csv", "--target", "y", "-o", files / "m")
    assert json.loads(run("inspect", files / "m", "--json"))["class"] == "StreamClassifier"
    measured = json.loads(run("evaluate", files / "m", files / "second.parquet", "--json"))
    assert measured["g_mean"] > 0.8
    lines = [
        json.loads(line)
        for line in run("predict", files / "m", files / "first.csv", "--proba", "--json").splitlines()
    ]
    assert all(0.0 <= line["proba_1"] <= 1.0 for line in lines)
    _frame().head(20).to_csv(files / "removed.csv", index=False)
    run("forget", files / "m", files / "removed.csv", "-o", files / "less")
    assert (
        json.loads(run("inspect", files / "less", "--json"))["classes"]
        != json.loads(run("inspect", files / "m", "--json"))["classes"]
    )
    run("fit", files / "second.parquet", "--continue", files / "less", "-o", files / "more")
    for words in (
        ["merge", files / "m", files / "less", "-o", files / "n"],
        ["export", files / "m", "--c", files / "m.h"],
    ):
        failed = cli_runner().invoke(main, [str(word) for word in words])
        assert failed.exit_code == 1
        assert "StreamClassifier" in failed.stderr
        assert "ProximalSVC" in failed.stderr or "--model proximal" in failed.stderr
    assert not (files / "n").exists()
