"""Errors about tables: hints can be followed in the interface that shows them; rows count from 0."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

import steelyard
from steelyard import KOIL, IncrementalSVC, ProximalSVC, StreamClassifier, TableModel
from steelyard.cli import main
from steelyard.evaluation import prequential
from steelyard.exceptions import SteelyardError
from steelyard.streams import ArrayStream
from steelyard.tables import open_stream
from steelyard.windowing import Refit
from tests.runner import cli_runner

X = np.random.default_rng(0).normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)
GAPPY, INFINITE = np.array(X), np.array(X)
GAPPY[3, 1] = np.nan
INFINITE[3, 1] = np.inf
FRAME = pd.DataFrame({"a": X[:, 0], "c": ["x", "y", None] * 20})
MIXED = FRAME.assign(b=INFINITE[:, 1])
MANY = pd.DataFrame({"a": X[:, 0], "name": [f"n{k}" for k in range(60)]})
TIMED = pd.DataFrame({"a": X[:, 0], "t": pd.date_range("2026-01-01", periods=60, freq="min")})
CSV = b"a,y\n1,0\n,1\n3,0\n4,1\n"


def _hint(call):
    with pytest.raises(SteelyardError) as error:
        call()
    assert error.value.hint
    return error.value.hint


def _kinds():
    return StreamClassifier().fit(pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}), [0, 1])


@pytest.mark.parametrize(
    ("call", "advice", "follow"),
    [
        (
            lambda: ProximalSVC().fit(GAPPY, Y),
            "steelyard.TableModel(ProximalSVC())",
            lambda: TableModel(ProximalSVC()).fit(GAPPY, Y).predict(GAPPY),
        ),
        (
            lambda: KOIL().fit(GAPPY, Y),
            "TableModel(KOIL()) and StreamClassifier",
            lambda: (TableModel(KOIL()).fit(GAPPY, Y), StreamClassifier().fit(GAPPY, Y)),
        ),
        (
            lambda: IncrementalSVC().fit(INFINITE, Y),
            "np.clip(X, -1e9, 1e9)",
            lambda: IncrementalSVC().fit(np.clip(INFINITE, -1e9, 1e9), Y),
        ),
        (
            lambda: StreamClassifier().fit(INFINITE.tolist(), Y),
            "X = np.where(np.isinf(X), np.nan, X)",
            lambda: StreamClassifier().fit(np.where(np.isinf(INFINITE.tolist()), np.nan, INFINITE), Y),
        ),
        (
            lambda: StreamClassifier().fit(MIXED, Y),
            "X.replace([np.inf, -np.inf], np.nan)",
            lambda: StreamClassifier().fit(MIXED.replace([np.inf, -np.inf], np.nan), Y),
        ),
        (
            lambda: list(open_stream(io.BytesIO(CSV), "y", missing="refuse")),
            'missing="indicator"',
            lambda: list(open_stream(io.BytesIO(CSV), "y", missing="indicator")),
        ),
        (
            lambda: StreamClassifier(class_weight="balanced"),
            'threshold={"miss": 20, "alarm": 1}',
            lambda: StreamClassifier(threshold={"miss": 20, "alarm": 1}).fit(X, Y),
        ),
        (
            lambda: prequential(StreamClassifier, ArrayStream(X, Y)),
            "StreamClassifier()",
            lambda: prequential(StreamClassifier(), ArrayStream(X, Y)),
        ),
        (
            lambda: prequential(Refit, ArrayStream(X, Y)),
            "create an instance: Refit(estimator)",
            lambda: prequential(Refit(LogisticRegression()), ArrayStream(X, Y)),
        ),
        (
            lambda: Refit(LogisticRegression()).fit(FRAME, Y),
            "TableModel(Refit(estimator)) learns text",
            lambda: TableModel(Refit(LogisticRegression())).fit(FRAME, Y),
        ),
        (
            lambda: TableModel(StreamClassifier).fit(FRAME, Y),
            "create an instance: StreamClassifier()",
            lambda: TableModel(StreamClassifier()).fit(FRAME, Y),
        ),
        (
            lambda: Refit(LogisticRegression).fit(X, Y),
            "create an instance: LogisticRegression()",
            lambda: Refit(LogisticRegression()).fit(X, Y),
        ),
        (
            lambda: StreamClassifier().fit(FRAME, Y).predict(X),
            "pass a table with",
            lambda: StreamClassifier().fit(FRAME, Y).predict(FRAME),
        ),
        (
            lambda: StreamClassifier().fit(X, Y).predict(FRAME),
            "learn tables from the first call on",
            lambda: StreamClassifier().fit(FRAME, Y).predict(FRAME),
        ),
        (
            lambda: _kinds().partial_fit(pd.DataFrame({"a": ["x"], "b": [1]}), [0]),
            "a column of text (str) from the first call on holds categories",
            lambda: StreamClassifier().fit(FRAME.astype({"c": str}), Y).partial_fit(FRAME[:1], [0]),
        ),
        (
            lambda: StreamClassifier().fit(FRAME.set_axis(["a", "a"], axis=1), Y),
            "rename or drop one of them",
            lambda: StreamClassifier().fit(FRAME.set_axis(["a", "b"], axis=1), Y),
        ),
        (
            lambda: StreamClassifier(window="1h").partial_fit(X, Y),
            "pass time= to partial_fit()",
            lambda: StreamClassifier(window="1h").partial_fit(X, Y, time=np.arange(60.0)),
        ),
        (
            lambda: prequential(StreamClassifier(window="1h"), TIMED.assign(y=Y), target="y"),
            'time="COLUMN" to TableModel or open_stream()',
            lambda: (
                prequential(StreamClassifier(window="1h"), open_stream(TIMED.assign(y=Y), "y", time="t")),
                TableModel(StreamClassifier(window="1h"), time="t").fit(TIMED, Y),
            ),
        ),
        *(
            (
                lambda rows=rows, y=y: KOIL().fit(rows, y),
                "TableModel(KOIL()) learns text, dates",
                lambda rows=rows, y=y: TableModel(KOIL()).fit(rows, y),
            )
            for rows, y in (
                (TIMED, Y),
                (pa.Table.from_pandas(FRAME), Y),
                ([{"a": 1.0, "c": "x"}, {"a": 2.0, "c": "y"}], [0, 1]),
            )
        ),
    ],
)
def test_following_the_hint_of_a_python_error_succeeds(call, advice, follow):
    assert advice in _hint(call)
    follow()


def test_hint_for_a_column_with_too_many_values_can_be_followed():
    from steelyard.tables.encoding import TableEncoder

    model = TableModel(ProximalSVC(), TableEncoder(max_categories=20))
    assert "X.drop(columns='name')" in _hint(lambda: model.fit(MANY, Y))
    model.fit(MANY.drop(columns="name"), Y)


@pytest.mark.parametrize("command", ["stream", "fit"])
def test_hint_for_missing_values_on_the_command_line_can_be_followed(command, tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(CSV)
    extra = ["-o", str(tmp_path / "m.steelyard")] if command == "fit" else []
    run = [command, str(path), "--target", "y", *extra]
    refused = cli_runner().invoke(main, [*run, "--missing", "refuse"])
    assert refused.exit_code != 0
    assert "hint: learn from missing values with --missing indicator" in refused.stderr
    assert cli_runner().invoke(main, [*run, "--missing", "indicator"]).exit_code == 0
    assert cli_runner().invoke(main, run).exit_code == 0


def test_messages_count_rows_from_0_and_lines_from_1():
    text = "a,y\n1,0\n2,1\n,0\n"  # the value of row 2 is missing, in line 4 of the text
    frame = pd.read_csv(io.StringIO(text))
    calls = {
        "line 4, column 'a'": lambda: list(open_stream(io.BytesIO(text.encode()), "y", missing="refuse")),
        "row 2, column 'a'": lambda: list(open_stream(pa.Table.from_pandas(frame), "y", missing="refuse")),
        "in row 2, column 0": lambda: ProximalSVC().fit(frame[["a"]], frame["y"]),
    }
    for place, call in calls.items():
        with pytest.raises(SteelyardError) as error:
            call()
        assert place in str(error.value)


def test_no_message_in_the_source_adds_1_to_a_row_number():
    found = []
    for path in sorted(Path(steelyard.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                for text, value in zip(node.values, node.values[1:], strict=False):
                    is_row = isinstance(text, ast.Constant) and str(text.value).endswith("row ")
                    is_shifted = isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.BinOp)
                    if is_row and is_shifted:
                        found.append(f"{path.name}:{node.lineno}")
    assert not found


def test_prequential_warns_of_a_positive_class_without_rows():
    with pytest.warns(UserWarning, match=r"positive='nope' is the label of no row; the labels are \[0, 1\]"):
        prequential(ProximalSVC(), ArrayStream(X, np.sort(Y)), positive="nope")
