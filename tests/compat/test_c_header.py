"""The compiled C header gives the results of predict()."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from steelyard import ProximalSVC, RandomFeatures
from steelyard.cli import main
from steelyard.compat.c_header import c_header
from steelyard.exceptions import DataError, ParameterError
from steelyard.persistence import save
from steelyard.tables import TableModel
from tests.runner import cli_runner

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")

PROGRAM = """
#include <stdio.h>
#include "model.h"
int main(void) {
    double x[MODEL_FEATURES], scores[MODEL_SCORES];
    for (;;) {
        for (int j = 0; j < MODEL_FEATURES; ++j) if (scanf("%lf", &x[j]) != 1) return 0;
        model_scores(x, scores);
        printf("%s", model_labels[model_class(x)]);
        for (int k = 0; k < MODEL_SCORES; ++k) printf(" %.17g", scores[k]);
        printf("\\n");
    }
}
"""
CATEGORIES = """
#include <stdio.h>
#include "model.h"
int main(void) {
    char kind[100];
    double amount, score;
    while (scanf("%lf %99s", &amount, kind) == 2) {
        double x[MODEL_FEATURES] = {amount};
        int known = model_set_category(x, "kind", kind);
        model_scores(x, &score);
        printf("%s %.17g %d\\n", model_labels[model_class(x)], score, known);
    }
    return 0;
}
"""


def compiled(folder, program):
    (folder / "main.c").write_text(program)
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    done = subprocess.run(
        ["cc", *strict, "main.c", "-o", "main"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "main"


def output_lines(program, lines):
    text = "\n".join(" ".join(map(str, line)) for line in lines) + "\n"
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


@needs_compiler
@pytest.mark.parametrize("n_classes", [1, 2, 4])
def test_scores_of_compiled_c_header_match_learner(tmp_path, n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, size=400)
    X = rng.normal(size=(400, 6)) * 10.0 ** np.arange(-3, 3) + y[:, None]
    model = ProximalSVC().fit(X, y)
    (tmp_path / "model.h").write_text(c_header(model))
    rows = rng.normal(size=(500, 6)) * 10.0 ** np.arange(-2, 4)
    said = output_lines(compiled(tmp_path, PROGRAM), [[repr(float(value)) for value in row] for row in rows])
    assert [int(line[0]) for line in said] == model.predict(rows).tolist()
    scores = np.array([[float(score) for score in line[1:]] for line in said])
    expected = model.decision_function(rows).reshape(500, -1)
    size = np.abs(rows) @ np.abs(model.coef_).T + np.abs(
        model.intercept_
    )  # scale of the rounding error of the sums
    assert (np.abs(scores - expected) <= 1e-12 * size).all()


@needs_compiler
def test_export_command_writes_model_with_categories(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"kind": rng.choice(["x", "z", "w"], size=300), "amount": rng.normal(size=300)})
    labels = np.where(frame["amount"] + (frame["kind"] == "z") > 0.8, "yes", "no")
    model = TableModel(ProximalSVC()).fit(frame, labels)
    save(model, tmp_path / "m.steelyard")
    words = ["export", str(tmp_path / "m.steelyard"), "--c", str(tmp_path / "model.h"), "--json"]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bytes"] == (tmp_path / "model.h").stat().st_size
    asked = pd.DataFrame(
        {"kind": rng.choice(["x", "z", "w", "unknown"], size=200), "amount": rng.normal(size=200)}
    )
    rows = zip(asked["amount"].map(repr), asked["kind"], strict=True)
    said = output_lines(compiled(tmp_path, CATEGORIES), rows)
    assert [line[0] for line in said] == model.predict(asked).tolist()
    np.testing.assert_allclose(
        [float(line[1]) for line in said], model.decision_function(asked), rtol=0.0, atol=1e-12
    )
    assert [line[2] == "1" for line in said] == (asked["kind"] != "unknown").tolist()


@needs_compiler
def test_names_and_labels_are_escaped_in_c_header(tmp_path):
    nasty = ['"; int x = 1; //', "*/ @ @UPPER@", "??/", "new\nline\\", "naïve 1", '"']
    y = np.array(nasty)[np.arange(60) % 6]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 6)), columns=nasty)
    (tmp_path / "model.h").write_text(c_header(ProximalSVC().fit(frame, y)))
    program = """
    #include <stdio.h>
    #include "model.h"
    int main(void) {
        for (int k = 0; k < MODEL_CLASSES; ++k) printf("%s%c%s%c", model_labels[k], 0, model_features[k], 0);
        return 0;
    }
    """
    done = subprocess.run([compiled(tmp_path, program)], capture_output=True, check=True)
    texts = done.stdout.decode().split("\0")[:-1]
    assert texts[0::2] == sorted(nasty)
    assert texts[1::2] == nasty


def test_nonlinear_model_raises_and_writes_nothing(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2
    mapped = ProximalSVC(feature_map=RandomFeatures(20, random_state=0)).fit(X, y)
    save(mapped, tmp_path / "m.steelyard")
    words = ["export", str(tmp_path / "m.steelyard"), "--c", str(tmp_path / "model.h")]
    result = cli_runner().invoke(main, words)
    assert result.exit_code == 1
    assert "without a feature map" in result.stderr
    assert not (tmp_path / "model.h").exists()
    with pytest.raises(DataError, match="without a feature map"):
        c_header(object())
    with pytest.raises(ParameterError, match="must be a C identifier"):
        c_header(ProximalSVC().fit(X, y), "no name")
