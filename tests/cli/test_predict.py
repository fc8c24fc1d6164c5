"""``steelyard predict``: thresholds, costs, probabilities, kept columns and output formats."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import steelyard
from steelyard import StreamClassifier
from steelyard.cli import main
from steelyard.cli.decision import probabilities
from steelyard.exceptions import ParameterError
from tests.runner import cli_runner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with models of rare fraud, and with rows whose ids have leading zeros."""
    folder = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    y = rng.random(3000) < 0.1
    frame = pd.DataFrame({"a": rng.normal(size=3000) + 1.5 * y, "kind": rng.choice(["x", "z"], 3000)})
    frame["y"] = np.where(y, "fraud", "ok")
    frame.to_csv(folder / "rows.csv", index=False)
    frame.insert(0, "id", [f"{k:06d}" for k in range(3000)])
    frame.head(400).to_csv(folder / "new.csv", index=False)
    three = frame.assign(y=np.where(y, "fraud", np.where(frame["a"] < 0, "low", "ok"))).drop(columns="id")
    three.to_csv(folder / "three.csv", index=False)
    for name in ("rows", "three"):
        words = [
            "fit",
            str(folder / f"{name}.csv"),
            "--target",
            "y",
            "--model",
            "proximal",
            "-o",
            str(folder / name),
        ]
        assert cli_runner().invoke(main, words).exit_code == 0
    return folder


@pytest.fixture
def predict(folder):
    def run(*options, model="rows"):
        words = ["predict", str(folder / model), str(folder / "new.csv"), *map(str, options)]
        return cli_runner().invoke(main, words)

    return run


def lines(result):
    assert result.exit_code == 0, result.output
    return pd.DataFrame([json.loads(line) for line in result.stdout.splitlines()])


def test_threshold_applies_to_score_of_rarer_class(predict):
    table = lines(predict("--json", "--threshold", 0.4))
    assert (table["label"] == np.where(table["score_fraud"] > 0.4, "fraud", "ok")).all()
    own = lines(predict("--json"))
    assert (own["label"] == "fraud").sum() > (table["label"] == "fraud").sum() > 0


def test_threshold_applies_to_given_positive_class(predict):
    table = lines(predict("--json", "--threshold", -0.4, "--positive", "ok"))
    assert (table["label"] == np.where(table["score_ok"] > -0.4, "ok", "fraud")).all()


def test_cost_uses_probabilities_at_learned_class_frequencies(predict, folder):
    table = lines(predict("--json", "--proba", "--cost", "miss=20,alarm=1"))
    np.testing.assert_allclose(table["proba_fraud"] + table["proba_ok"], 1.0)
    assert (table["label"] == np.where(20 * table["proba_fraud"] > table["proba_ok"], "fraud", "ok")).all()
    learner = steelyard.load(folder / "rows").estimator
    odds = table["proba_fraud"] / table["proba_ok"]
    n_fraud, n_ok = learner.class_count_
    own = lines(
        predict("--json")
    )  # a balanced model predicts fraud where its balanced probability exceeds 0.5
    assert ((odds > n_fraud / n_ok) == (own["label"] == "fraud")).all()


def test_predict_with_higher_miss_cost_gives_more_alarms(predict):
    counts = [
        (lines(predict("--json", "--cost", f"miss={c}"))["label"] == "fraud").sum() for c in (1, 10, 100)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_mean_predicted_probability_is_near_class_frequency(predict):
    table = lines(predict("--json", "--proba"))
    assert table["proba_fraud"].mean() == pytest.approx(0.1, abs=0.04)


def test_prior_balanced_gives_probabilities_at_equal_class_frequencies(predict):
    observed = lines(predict("--json", "--proba", "--prior", "observed"))
    pd.testing.assert_frame_equal(observed, lines(predict("--json", "--proba")))
    balanced = lines(predict("--json", "--proba", "--prior", "balanced"))
    odds = balanced["proba_fraud"] / balanced["proba_ok"]
    ratio = odds / (observed["proba_fraud"] / observed["proba_ok"])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)  # the ratio of the class frequencies
    assert 7 < ratio[0] < 12
    np.testing.assert_array_equal(odds > 1, balanced["score_fraud"] > 0)


def test_prior_without_probabilities_is_usage_error(predict):
    result = predict("--prior", "balanced")
    assert result.exit_code == 2
    assert "give --proba or --cost too" in result.output


def test_prior_of_model_without_this_option_is_refused():
    rng = np.random.default_rng(0)
    model = GaussianNB().fit(rng.normal(size=(40, 2)), np.arange(40) % 2)
    with pytest.raises(ParameterError, match="--prior: the probabilities of GaussianNB"):
        probabilities(model, rng.normal(size=(3, 2)), "balanced")


def test_predict_copies_requested_input_columns_unchanged(predict):
    table = lines(predict("--json", "--keep", "id", "--keep", "kind", "--limit", 3))
    assert table["id"].tolist() == ["000000", "000001", "000002"]
    assert table.columns.tolist()[:4] == ["row", "id", "kind", "label"]


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl", "p.parquet", "new/p.ndjson"])
def test_output_suffix_selects_format(predict, tmp_path, name):
    result = predict("-o", tmp_path / name, "--keep", "id", "--proba", "--chunk", 150)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    path = tmp_path / name
    read = {".csv": lambda p: pd.read_csv(p, dtype={"id": str}), ".parquet": pd.read_parquet}.get(
        path.suffix, lambda p: pd.read_json(p, lines=True, dtype={"id": str})
    )
    table = read(path)
    expected = lines(predict("--json", "--keep", "id", "--proba"))
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def test_predict_bad_row_keeps_previous_output_file(folder, tmp_path):
    out = tmp_path / "p.csv"
    out.write_text("previous", encoding="utf-8")
    good = "".join(f"{k},x\n" for k in range(3000))
    (tmp_path / "bad.csv").write_text(f"a,kind\n{good}what,x\n", encoding="utf-8")
    words = ["predict", str(folder / "rows"), str(tmp_path / "bad.csv"), "-o", str(out)]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 1
    assert "line 3,002" in result.stderr
    assert out.read_text(encoding="utf-8") == "previous"


def test_predict_threshold_with_three_classes_needs_positive_option(predict):
    result = predict("--threshold", 0, model="three")
    assert result.exit_code == 1
    assert "hint: --positive LABEL" in result.stderr
    table = lines(predict("--json", "--threshold", -0.2, "--positive", "fraud", model="three"))
    others = np.where(table["score_low"] > table["score_ok"], "low", "ok")
    assert (table["label"] == np.where(table["score_fraud"] > -0.2, "fraud", others)).all()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--positive", 7), 1, "--positive: there is no class '7'; the classes are fraud, ok."),
        (("--keep", "ids"), 1, "the kept column 'ids' does not exist"),
        (("--cost", "miss=0"), 2, "positive numbers"),
        (("--cost", "hit=2"), 2, "expected miss=A,alarm=B"),
        (("--cost", "miss"), 2, "expected miss=A,alarm=B"),
        (("--cost", "miss=2", "--threshold", 1), 2, "give one of them"),
    ],
)
def test_predict_invalid_options_give_error_messages(predict, options, code, message):
    result = predict(*options)
    assert result.exit_code == code
    assert message in result.stderr


def test_evaluate_unknown_positive_class_is_an_error_before_reading(folder):
    words = ["evaluate", str(folder / "rows"), "nowhere.csv", "--positive", "7"]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 1
    assert "there is no class '7'; the classes are fraud, ok" in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "tune"])
def test_evaluate_and_tune_commands_write_report(folder, tmp_path, command):
    out = str(tmp_path / "r.html")
    source = [str(folder / "rows"), str(folder / "rows.csv")] if command == "evaluate" else [
        str(folder / "rows.csv"), "--target", "y", "--grid", "C=0.1,1"
    ]  # fmt: skip
    result = cli_runner().invoke(main, [command, *source, "--report", out, "--limit", "2000"])
    assert result.exit_code == 0, result.output
    assert "Finds" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_tune_with_many_classes_maximises_mean_recall(folder):
    words = ["tune", str(folder / "three.csv"), "--target", "y", "--grid", "C=0.1,1", "--json"]
    assert json.loads(cli_runner().invoke(main, words).stdout)["by"] == "mean_macro_recall"


def test_alarm_share_threshold_flags_that_share_of_rows(predict):
    table = lines(predict("--json", "--threshold", "alarms=0.3"))
    assert abs((table["label"] == "fraud").sum() - 0.3 * len(table)) <= 20
    for goal in ("recall=0.9", "alarms=2", "gmean"):
        result = predict("--threshold", goal)
        assert result.exit_code == 2
        assert "--set threshold=recall=0.95" in result.output


def test_probabilities_at_observed_class_shares_are_not_reweighted():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.1).astype(int)
    X = rng.normal(size=(600, 2)) + y[:, None]
    model = StreamClassifier().fit(X, y)
    assert (probabilities(model, X) == model.predict_proba(X)).all()


def test_miss_cost_column_is_applied_row_by_row(predict, folder):
    rows = pd.read_csv(folder / "new.csv", dtype={"id": str})
    rows["amount"] = np.where(np.arange(len(rows)) % 2, 1000.0, 1.0)
    rows.to_csv(folder / "amounts.csv", index=False)
    arguments = [str(folder / "rows"), str(folder / "amounts.csv"), "--json", "--proba"]
    result = cli_runner().invoke(main, ["predict", *arguments, "--cost", "miss=amount,alarm=5"])
    table = lines(result)
    is_alarm = table["proba_fraud"] * rows["amount"] > 5 * table["proba_ok"]
    assert (table["label"] == np.where(is_alarm, "fraud", "ok")).all()
    wrong = cli_runner().invoke(main, ["predict", *arguments, "--cost", "miss=kind,alarm=5"])
    assert wrong.exit_code == 1
    assert "must contain numbers" in wrong.stderr


@pytest.mark.parametrize(("cost", "found"), [("", "no value"), ("-2", "-2")])
def test_row_without_valid_cost_raises(folder, cost, found):
    rows = pd.read_csv(folder / "new.csv", dtype={"id": str})
    rows["amount"] = ["1.5", "3", cost, *["2"] * (len(rows) - 3)]
    rows.to_csv(folder / "gap.csv", index=False)
    arguments = ["predict", str(folder / "rows"), str(folder / "gap.csv"), "--cost", "miss=amount,alarm=5"]
    result = cli_runner().invoke(main, arguments)
    assert result.exit_code == 1
    message = "--cost: column 'amount' must contain a number of at least 0 in every row"
    assert f"{message}; got {found} in row 2" in result.stderr
