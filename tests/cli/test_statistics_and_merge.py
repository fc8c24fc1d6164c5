"""``steelyard statistics`` and ``steelyard merge``."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC, RandomFeatures, load
from steelyard.cli import main
from tests.distributed.data import assert_same_model
from tests.proximal.data import imbalanced
from tests.runner import cli_runner


@pytest.fixture
def run():
    return lambda *arguments: cli_runner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def rows(rng):
    return imbalanced(rng, 300, 4)


@pytest.fixture
def tables(tmp_path, rows):
    X, y = rows
    paths = []
    for number, part in enumerate(np.split(np.arange(300), [50, 51])):
        lines = [",".join([*map(repr, map(float, X[i])), "fraud" if y[i] else "ok"]) for i in part]
        paths.append(tmp_path / f"site{number}.csv")
        paths[-1].write_text("\n".join(["a,b,c,d,label", *lines, ""]), encoding="utf-8")
    return paths


def statistics(run, tables, *options):
    parts = [table.with_suffix(".stats") for table in tables]
    for table, part in zip(tables, parts, strict=True):
        result = run("statistics", table, "--target", "label", "-o", part, *options)
        assert result.exit_code == 0, result.output
    return parts


def test_merge_of_statistics_equals_fit_on_all_rows(run, tables, rows, tmp_path):
    out = tmp_path / "model.steelyard"
    result = run("merge", *statistics(run, tables), "-o", out, "--set", "C=3", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["rows"] == 300
    assert [part["source"].rpartition("/")[2] for part in summary["parts"]] == [t.name for t in tables]
    X, y = rows
    assert_same_model(load(out).estimator, ProximalSVC(C=3).fit(X, np.where(y, "fraud", "ok")))


def test_merge_of_same_statistics_twice_is_an_error_and_writes_nothing(run, tables, tmp_path):
    parts = statistics(run, tables)
    shutil.copy(parts[0], tmp_path / "copy.stats")
    result = run("merge", *parts, tmp_path / "copy.stats", "-o", tmp_path / "model")
    assert result.exit_code == 1
    assert "is already contained" in result.stderr
    assert not (tmp_path / "model").exists()


def test_merged_statistics_can_be_merged_again(run, tables, rows, tmp_path):
    parts = statistics(run, tables)
    assert run("merge", *parts[:2], "-o", tmp_path / "west.stats").exit_code == 0
    result = run("merge", tmp_path / "west.stats", parts[2], "-o", tmp_path / "model")
    assert result.exit_code == 0, result.output
    X, y = rows
    assert_same_model(load(tmp_path / "model").estimator, ProximalSVC().fit(X, np.where(y, "fraud", "ok")))


def test_merge_with_random_features_equals_fit_on_all_rows(run, tables, rows, tmp_path):
    options = ("--random-features", 20, "--gamma", 0.01, "--gamma", 0.1, "--seed", 5)
    result = run("merge", *statistics(run, tables, *options), "-o", tmp_path / "model")
    assert result.exit_code == 0, result.output
    X, y = rows
    feature_map = RandomFeatures(20, gamma=[0.01, 0.1], random_state=5)
    fresh = ProximalSVC(feature_map=feature_map).fit(X, np.where(y, "fraud", "ok"))
    scores = load(tmp_path / "model").estimator.decision_function(X)
    np.testing.assert_allclose(scores, fresh.decision_function(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--missing", "mean"), "differs between machines"),
        (("--random-features", "20"), "give numbers: --gamma"),
        (("--set", "C=-1"), "C must be"),
    ],
)
def test_statistics_with_data_dependent_options_is_an_error(run, tables, tmp_path, options, message):
    result = run("statistics", tables[0], "--target", "label", "-o", tmp_path / "part.stats", *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "part.stats").exists()


def test_merge_aligns_categories_of_statistics(run, tmp_path):
    lines = [("1,red,x", "2,blue,y", "3,red,y"), ("1,green,x", "5,blue,x", "4,red,y")]
    paths = [tmp_path / "one.csv", tmp_path / "two.csv", tmp_path / "all.csv"]
    for path, rows in zip(paths, (*lines, (*lines[0], *lines[1])), strict=True):
        path.write_text("\n".join(["a,colour,label", *rows, ""]), encoding="utf-8")
    *parts, complete = statistics(run, paths)
    assert run("merge", *parts, "-o", tmp_path / "model").exit_code == 0
    assert run("merge", complete, "-o", tmp_path / "complete").exit_code == 0
    assert_same_model(load(tmp_path / "model").estimator, load(tmp_path / "complete").estimator)


def test_statistics_missing_value_error_names_file_and_column(run, tmp_path):
    table = tmp_path / "site.csv"
    table.write_text("a,b,label\n1,2,x\n1,,y\n", encoding="utf-8")
    options = ("--target", "label", "--missing", "refuse")
    result = run("statistics", table, *options, "-o", tmp_path / "part.stats")
    assert result.exit_code == 1
    assert "site.csv" in result.stderr
    assert "'b'" in result.stderr


def test_merge_with_unknown_parameter_is_an_error(run, tables, tmp_path):
    result = run("merge", *statistics(run, tables), "-o", tmp_path / "model", "--set", "depth=3")
    assert result.exit_code == 1
    assert "depth" in result.stderr


def test_merge_with_c_auto_without_folds_is_an_error(run, tables, tmp_path):
    run("statistics", tables[0], "--target", "label", "-o", tmp_path / "a.stats")
    result = run("merge", tmp_path / "a.stats", "--set", "C=auto", "-o", tmp_path / "m")
    assert result.exit_code == 1
    assert "folds" in result.stderr
    assert not (tmp_path / "m").exists()


# -- learn and forget in one file -----------------------------------------------------------------------


@pytest.fixture
def window(tmp_path, rng):
    """Return the paths of three weekly tables whose categories differ."""
    X, y = imbalanced(rng, 900, 3)
    X[:, 1] = np.round(X[:, 1], 2)
    weeks = []
    for number, part in enumerate(np.split(np.arange(900), 3)):
        countries = rng.choice([["NZ", "AU"], ["NZ", "FJ"], ["FJ", "TO"]][number], 300)
        lines = [
            ",".join([*map(repr, map(float, X[i])), country, "fraud" if y[i] else "ok"])
            for i, country in zip(part, countries, strict=True)
        ]
        weeks.append(tmp_path / f"week{number}.csv")
        weeks[-1].write_text("\n".join(["a,b,c,place,label", *lines, ""]), encoding="utf-8")
    return weeks


def done(result):
    assert result.exit_code == 0, result.output
    return result


def test_statistics_with_forget_moves_window_bit_identically(run, window, tmp_path):
    model, change, moved = (tmp_path / name for name in ("model", "change.stats", "moved"))
    done(run("statistics", window[0], "--target", "label", "-o", tmp_path / "week0.stats"))
    like = ("--like", tmp_path / "week0.stats")  # all files use the same quantizer
    done(run("statistics", window[1], *like, "-o", tmp_path / "week1.stats"))
    done(run("merge", tmp_path / "week0.stats", tmp_path / "week1.stats", "-o", model))
    result = done(
        run("statistics", window[2], "--forget", window[0], "--like", model, "-o", change, "--json")
    )
    facts = json.loads(result.stdout)
    assert facts["rows"] == facts["forget"]["rows"] == 300
    summary = json.loads(done(run("merge", model, change, "-o", moved, "--json")).stdout)
    assert summary["rows"] == 600
    assert [part["id"] for part in summary["forgotten"]] == [facts["forget"]["id"]]
    assert facts["forget"]["id"] not in {part["id"] for part in summary["parts"]}
    done(run("statistics", window[1], "--like", model, "-o", tmp_path / "kept.stats"))
    done(run("statistics", window[2], "--like", model, "-o", tmp_path / "new.stats"))
    done(run("merge", tmp_path / "kept.stats", tmp_path / "new.stats", "-o", tmp_path / "never"))
    assert_same_scores(moved, tmp_path / "never", window[2])


def assert_same_scores(one, other, table):
    frame = pd.read_csv(table).drop(columns="label")
    far = frame.assign(a=1e3 * frame["a"], c=-1e3 * frame["c"])  # rows far outside the data
    for rows in (frame, far):
        np.testing.assert_array_equal(load(one).decision_function(rows), load(other).decision_function(rows))


def test_statistics_with_forget_can_be_merged_before_applying_to_model(run, window, tmp_path):
    model, both, moved = (tmp_path / name for name in ("model", "both.stats", "moved"))
    done(run("statistics", window[0], "--target", "label", "-o", tmp_path / "week0.stats"))
    done(run("merge", tmp_path / "week0.stats", "-o", model))
    done(run("statistics", window[1], "--like", model, "-o", tmp_path / "come.stats"))
    done(run("statistics", "--forget", window[0], "--like", model, "-o", tmp_path / "go.stats"))
    summary = done(run("merge", tmp_path / "go.stats", tmp_path / "come.stats", "-o", both, "--json"))
    assert len(json.loads(summary.stdout)["to forget"]) == 1
    assert "(to forget)" in done(run("inspect", both)).stdout
    done(run("merge", model, both, "-o", moved))
    done(run("merge", tmp_path / "come.stats", "-o", tmp_path / "never"))
    assert_same_scores(moved, tmp_path / "never", window[1])


def test_merge_that_forgets_rows_twice_or_unknown_rows_is_an_error(run, window, tmp_path):
    model, change = tmp_path / "model", tmp_path / "change.stats"
    done(run("statistics", window[0], "--target", "label", "-o", tmp_path / "week0.stats"))
    done(run("merge", tmp_path / "week0.stats", "-o", model))
    done(run("statistics", "--forget", window[0], "--target", "label", "-o", change))
    done(run("statistics", window[1], "--like", model, "-o", tmp_path / "week1.stats"))
    done(run("merge", model, tmp_path / "week1.stats", change, "-o", model))
    before = model.read_bytes()
    again = run("merge", model, change, "-o", model)
    assert (again.exit_code, "were already forgotten" in again.stderr) == (1, True)
    done(run("statistics", "--forget", window[2], "--like", model, "-o", tmp_path / "unknown.stats"))
    unknown = run("merge", model, tmp_path / "unknown.stats", "-o", model)
    assert unknown.exit_code == 1
    assert "never learned" in unknown.stderr
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "label"], "give DATA to learn, --forget DATA, or both"),
        (["DATA"], "--target is missing"),
        (["DATA", "--like", "MODEL", "--set", "C=3"], "parameters come from the file"),
        (["DATA", "--like", "MODEL", "--target", "a"], "is 'label'"),
    ],
)
def test_statistics_with_conflicting_options_is_an_error(run, window, tmp_path, arguments, message):
    done(run("statistics", window[0], "--target", "label", "-o", tmp_path / "week0.stats"))
    done(run("merge", tmp_path / "week0.stats", "-o", tmp_path / "model"))
    paths = {"DATA": window[0], "MODEL": tmp_path / "model"}
    result = run("statistics", *(paths.get(word, word) for word in arguments), "-o", tmp_path / "x.stats")
    assert result.exit_code != 0
    assert message in result.stderr
    assert not (tmp_path / "x.stats").exists()
