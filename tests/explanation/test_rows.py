"""RowExplanations: text, HTML, picture and plain values; explanations of tables."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from steelyard import IncrementalSVC, ProximalSVC, StreamClassifier
from steelyard.exceptions import DataError
from steelyard.explanation.rows import value_text
from steelyard.tables import TableModel
from steelyard.tables.frames import time_texts

mpl.use("Agg")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 12))
Y = np.where(X[:, 2] - X[:, 5] > 1.2, "yes", "no")


@pytest.fixture(scope="module")
def found():
    return IncrementalSVC().fit(X, Y).explain(X[:8])


def test_text_lists_base_columns_score_changes_and_nearest_rows(found):
    text = str(found[0])
    lines = text.splitlines()
    assert lines[0].startswith(f"Row 0: predicted {found.labels[0].item()!r}, score ")
    numbers = [float(line.split()[-1]) for line in lines[1:14]]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.01)
    assert "2 other columns" in text
    assert "Nearest remembered rows" in text
    assert "The prediction would be " in str(found)
    assert "... and 3 more rows." in str(found)


def test_text_shows_score_of_predicted_class(found):
    for row, label in enumerate(found.labels):
        assert found.support(row).sum() + (found.base if label == "yes" else -found.base) > 0.0


def test_index_and_slice_of_explanations_return_the_same_rows(found):
    assert len(found[2:5]) == 3
    assert len(found[-1]) == 1
    np.testing.assert_array_equal(found[-1].contributions[0], found.contributions[7])
    assert str(found[3]).splitlines()[1:] == str(found[2:5][1]).splitlines()[1:]
    with pytest.raises(IndexError):
        found[8]


def test_html_escapes_names_and_balances_tags():
    frame = pd.DataFrame(X, columns=[f"<b>{k}" for k in range(12)])
    html = IncrementalSVC().fit(frame, Y).explain(frame[:2])._repr_html_()

    class Tags(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.seen = [], set()

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)
            self.seen.add(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert "b" not in tags.seen
    assert "&lt;b&gt;2" in html


def test_plot_draws_bars_from_base_to_score(found):
    ax = found.plot(1, n_columns=6)
    bars = [patch for patch in ax.patches if patch.get_width()]
    assert len(bars) == 7
    sign = 1.0 if found.labels[1] == "yes" else -1.0
    assert bars[0].get_x() == pytest.approx(sign * found.base)
    assert sum(bar.get_width() for bar in bars) == pytest.approx(sign * (found.score[1] - found.base))
    mpl.pyplot.close(ax.figure)


@pytest.mark.parametrize("scale", [1.0, 0.01, 1e-3, 1e-9])
def test_small_contributions_are_shown_with_enough_digits(found, scale):
    small = replace(
        found, contributions=scale * found.contributions, base=scale * found.base, score=scale * found.score
    )
    largest = small.largest(0, 1)[0]
    texts = [line.split()[-1] for line in str(small[0]).splitlines() if line.startswith(f"  {largest[0]} = ")]
    texts += [ax_text.get_text() for ax_text in small.plot(0).texts[:1]]
    mpl.pyplot.close("all")
    assert [float(text) for text in texts] == pytest.approx([largest[2]] * 2, rel=0.1)
    assert texts[0] in small.row_html(0)


def test_to_dicts_values_are_json_serializable_and_add_up(found):
    for row in json.loads(json.dumps(found.to_dicts())):
        assert sum(row["contributions"].values()) + row["base"] == pytest.approx(row["score"])
        assert (row["score"] > 0) == (row["label"] == row["score_class"])
        assert {near["label"] for near in row["nearest"]} == {"no", "yes"}


def test_to_dicts_with_three_classes_groups_values_by_class():
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    found = ProximalSVC().fit(X, labels).explain(X[:3])
    row = json.loads(json.dumps(found.to_dicts()))[1]
    for label in ("0", "1", "2"):
        total = sum(row["contributions"][label].values()) + row["base"][label]
        assert total == pytest.approx(row["score"][label])
    assert "predicted" in str(found)
    found.plot(2)
    mpl.pyplot.close("all")


# -- tables -------------------------------------------------------------------------------------------


def payments(n_rows):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "amount": rng.lognormal(3.0, 1.0, n_rows),
            "age": rng.integers(18, 90, n_rows).astype(float),
            "country": rng.choice(["NZ", "AU", "FR"], n_rows),
        }
    )
    return frame, np.where((frame.amount > 40.0) & (frame.country == "FR"), "fraud", "ok")


@pytest.mark.parametrize("estimator", [ProximalSVC(), StreamClassifier()], ids=["growing", "hashed"])
def test_table_model_explains_columns_of_the_table(estimator):
    frame, labels = payments(1500)
    model = TableModel(estimator).fit(frame, labels)
    rows = frame[:30]
    found = model.explain(rows)
    assert found.column_names == ["amount", "age", "country"]
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, model.decision_function(rows), rtol=0, atol=1e-9)
    assert found.feature_importances.argmin() == 1
    assert found.values[3].tolist() == frame.iloc[3].tolist()
    assert f"country = {frame.country[0]}" in str(found[0])
    for changes in found.changes:
        for change in changes:
            assert change.values.keys() <= {"amount", "age"}


def test_table_model_of_estimator_without_explain_raises():
    frame, labels = payments(200)
    model = TableModel(DecisionTreeClassifier()).fit(frame[["amount", "age"]], labels)
    with pytest.raises(DataError, match="DecisionTreeClassifier"):
        model.explain(frame[["amount", "age"]])


@pytest.mark.parametrize("make", [StreamClassifier, lambda: TableModel(ProximalSVC())])
def test_table_explanation_shows_times_and_missing_values_as_text(make):
    rng, n = np.random.default_rng(0), 300
    y = np.arange(n) % 2
    when = pd.Timestamp("2026-01-02 09:30") + pd.to_timedelta(np.arange(n), unit="D")
    shop = np.where(y == 1, "corner", None)
    shop[0] = "market"
    table = pd.DataFrame({"when": when, "amount": 12_345.67 * y + rng.normal(size=n), "shop": shop})
    found = make().fit(table, y).explain(table[:2])
    text = str(found[0])
    assert "when = 2026-01-02 09:30" in text
    assert found.values[1][found.column_names.index("amount")] == table["amount"][1]
    assert f"amount = {table['amount'][1]:.0f}" in str(found[1])
    assert "shop = missing" in str(make().fit(table, y).explain(table[2:3]))
    for near in found.nearest[0] if found.nearest else []:  # a linear learner keeps no rows
        assert near.values[found.column_names.index("when")].startswith("2026-")
    json.dumps(found.to_dicts())


@pytest.mark.parametrize("make", [StreamClassifier, lambda: TableModel(ProximalSVC())])
def test_table_explanation_shows_a_category_that_was_never_learned(make):
    frame, labels = payments(600)
    rows = pd.DataFrame({"amount": [50.0, 50.0], "age": [30.0, 30.0], "country": ["XX", None]})
    model = make().fit(frame, labels)
    found = model.explain(rows)
    assert found.values[:, found.column_names.index("country")].tolist() == ["XX", None]
    assert "country = XX" in str(found[0])
    assert "country = missing" in str(found[1])
    total = found.contributions.sum(axis=1) + found.base
    np.testing.assert_allclose(total, model.decision_function(rows), rtol=0, atol=1e-9)


def test_time_texts_omit_seconds_and_hours_that_are_zero():
    moments = ["2026-01-31", "2026-01-31T09:30:00", "2026-01-31T09:30:05", "1969-12-31T23:59:00"]
    seconds = np.array([*np.array(moments, dtype="datetime64[s]").astype(float), np.nan])
    shown = time_texts(seconds).tolist()
    assert shown == ["2026-01-31", "2026-01-31 09:30", "2026-01-31 09:30:05", "1969-12-31 23:59", None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345, "0.1235"),
        (12_345.67, "12346"),
        (-5_000_000.0, "-5000000"),
        (1e15, "1e+15"),
        (None, "missing"),
        (np.nan, "missing"),
        ("x", "x"),
    ],
)
def test_value_text_is_short_and_without_exponent_for_amounts(value, text):
    assert value_text(value) == text
