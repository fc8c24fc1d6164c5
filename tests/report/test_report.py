"""The report: complete, self-contained, and sound for two classes, many, and hardly any rows."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier

from steelyard import ProximalSVC
from steelyard._visible import CONTROL_CHARACTERS
from steelyard.evaluation import PrequentialEvaluator, SklearnPeer, prequential
from steelyard.report import render_report, write_report
from steelyard.report.svg import Frame, nice_ticks, path_of
from steelyard.report.text import MEASURES
from steelyard.streams import ArrayStream, Gaussians, demo_stream
from steelyard.tables import open_stream


class Balance(HTMLParser):
    """Notes tags that are not closed, and addresses that a browser would ask for."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.n_charts = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.n_charts += tag == "svg"
        self.addresses += [v for k, v in attributes if k in {"src", "href", "xlink:href"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        """<line .../> opens nothing."""

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def _parsed(page):
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def result():
    models = {"balanced": ProximalSVC(), "<b>SGD & co": SklearnPeer(SGDClassifier(random_state=0))}
    return prequential(models, demo_stream(12_000), window=1000)


def test_the_report_asks_the_network_for_nothing(result):
    page = render_report(result)
    assert _parsed(page).addresses == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", page)


def test_every_part_is_there(result):
    page = render_report(result)
    for heading in (
        "G-mean over the last 1,000 rows",
        "Sensitivity",
        "What happened",
        "Which features carry",
        "Class by class",
        "What was taken for what",
        "Scores of both sides",
        "ROC",
        "Precision and recall",
        "The cost of other thresholds",
        "Throughput",
        "the concept drifts",
        "Where this comes from",
    ):
        assert heading in page
    assert _parsed(page).n_charts >= 16


def test_the_headline_counts_cases_found_and_false_alarms(result):
    (line,) = [line for line in result.by_class("balanced") if line["label"] == result.positive]
    found, false = round(100 * line["recall"]), round(100 * (1 - line["precision"]))
    assert f"<h1>Finds {found} of 100 “1” rows; {false} of 100 alarms are false</h1>" in render_report(result)


def test_the_detail_of_the_best_model_is_open_and_comes_first():
    models = {"unweighted": ProximalSVC(class_weight=None), "balanced": ProximalSVC()}
    page = render_report(prequential(models, demo_stream(6000)))
    details = re.findall(r"<details( open)?><summary><bdi>(\w+)", page)
    assert details == [(" open", "balanced"), ("", "unweighted")]


def test_every_measure_is_explained_where_it_stands(result):
    page = render_report(result)
    for key in ("g_mean", "sensitivity", "specificity", "auc", "f1"):
        assert MEASURES[key].meaning in page
    heads = re.search(r'<table class="models">.*?</thead>', page, re.DOTALL)[0]
    assert heads.count("<small>") == heads.count("<th ")


def test_a_drift_is_told_in_words():
    page = render_report(prequential(ProximalSVC(), demo_stream(12_000)))
    events = re.search(r'<ol class="events">.*?</ol>', page, re.DOTALL)[0]
    assert re.search(r"The concept drifts until row [\d,]+\. The G-mean of “ProximalSVC” fell from", events)
    assert "of 100" in events
    assert "It was back after about" in events or "By the end it had not come back" in events


def test_dates_stand_on_the_axis_when_rows_have_times():
    rng = np.random.default_rng(0)
    y = rng.random(4000) < 0.2
    stream = ArrayStream(rng.normal(size=(4000, 2)) + y[:, None], y, time=1.7e9 + 3600.0 * np.arange(4000))
    page = render_report(prequential(ProximalSVC(), stream))
    ticks = re.findall(r'class="tick xtick"[^>]*>([^<]*)<', page)
    assert "14 Nov 2023" in ticks  # when the first row happened
    assert '[4000, "29 Apr 2024"]' in page


def test_seconds_since_a_beginning_are_no_dates_of_1970():
    rng = np.random.default_rng(0)
    y = rng.random(3000) < 0.2
    stream = ArrayStream(rng.normal(size=(3000, 2)) + y[:, None], y, time=60.0 * np.arange(3000))
    page = render_report(prequential(ProximalSVC(), stream))
    assert '[3000, "2 d 01:59"]' in page
    assert "Jan" not in "".join(re.findall(r'class="tick xtick"[^>]*>([^<]*)<', page))


def test_curves_that_are_all_high_get_an_axis_that_tells_them_apart():
    rng = np.random.default_rng(0)
    y = rng.random(3000) < 0.2
    page = render_report(
        prequential(ProximalSVC(), ArrayStream(rng.normal(size=(3000, 2)) + 4 * y[:, None], y))
    )
    assert re.search(r"G-mean, from 0\.[6-9] up", page)


def test_a_value_that_stands_alone_is_drawn():
    frame = Frame(100, 100, (0, 4), (0, 1), "one value")
    frame.line([0, 1, 2, 3, 4], [math.nan, 0.5, math.nan, 0.5, 0.5], "series0")
    assert frame.svg().count('class="point series0"') == 1


def test_a_stream_of_one_class_says_that_there_was_nothing_to_tell_apart():
    X = np.random.default_rng(0).normal(size=(300, 2))
    page = render_report(prequential(ProximalSVC(), ArrayStream(X, ["ill"] * 300)))
    assert "<h1>Only “ill” came, so nothing could be told apart</h1>" in page
    assert "G-mean over the last" not in page
    _parsed(page)


def test_a_finished_model_that_is_tested_is_said_to_learn_nothing():
    rng = np.random.default_rng(0)
    y = rng.random(2000) < 0.2
    X = rng.normal(size=(2000, 2)) + y[:, None]
    evaluator = PrequentialEvaluator({"model": ProximalSVC().fit(X, y)}, learns=False)
    evaluator.run(ArrayStream(X, y))
    page = render_report(evaluator.result(None))
    assert "it learned nothing from these rows" in page
    assert "then learned" not in page


def test_the_features_that_carry_the_model_are_named_strongest_first():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"noise": rng.normal(size=4000), "amount": rng.normal(size=4000) * 50})
    frame["y"] = np.where(frame["amount"] > 60, "fraud", "ok")
    page = render_report(prequential(ProximalSVC(), open_stream(frame, "y", chunk=200)))
    names = re.findall(r'<span class="what"><bdi>(\w+)', page)
    assert names == ["amount", "noise"]


def test_a_run_that_ended_early_says_so(result):
    result.ended = "rows.csv, line 9: a value is <missing>."
    try:
        page = render_report(result)
    finally:
        result.ended = None
    assert "The run ended early." in page
    assert "a value is &lt;missing&gt;." in page


def test_what_was_noticed_in_the_columns_is_told():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": np.arange(1500), "a": rng.normal(size=1500)})
    frame["y"] = np.where(frame["a"] > 1, "bad", "ok")
    page = render_report(prequential(ProximalSVC(), open_stream(frame, "y")))
    assert "Column &#39;n&#39; counts the rows, as an index does (--drop n)." in page


def test_where_the_figures_come_from_is_told(result):
    page = render_report(result)
    facts = page[page.index("Where this comes from") :]
    for fact in (
        "seed",
        "written by",
        f"steelyard {version('steelyard')}",
        "parameters of “balanced”",
        "C=1.0",
    ):
        assert fact in facts


@pytest.mark.parametrize("n_classes", [22, 100])
def test_of_many_classes_the_largest_are_shown_and_the_rest_folded(n_classes):
    rng = np.random.default_rng(0)
    sizes = 1.0 / np.arange(1, n_classes + 1)
    y = rng.choice(n_classes, size=8000, p=sizes / sizes.sum())
    X = rng.normal(size=(8000, 4)) + np.column_stack([y, y % 5, y % 7, -y])
    result = prequential(ProximalSVC(), ArrayStream(X, np.array([f"c{k}" for k in y])))
    page = render_report(result)
    _parsed(page)
    assert re.search(r"<h1>Finds \d+ of 100 rows of a class, averaged over \d+ classes</h1>", page)
    assert "--positive LABEL" in page
    tables = re.findall(r'<table class="classes">.*?</table>', page, re.DOTALL)
    n_rows = [table.count("<tr>") - 1 for table in tables]
    n_seen = len(result.by_class("ProximalSVC"))
    assert n_rows == [12, n_seen - 12]
    supports = [int(n.replace(",", "")) for n in re.findall(r"</bdi></td><td>([\d,]+)<", tables[0])]
    assert supports == sorted(supports, reverse=True)
    confusion = re.search(r'<table class="confusion">.*?</table>', page, re.DOTALL)[0]
    shown = re.findall(r'<th scope="row"><bdi>(\w+)</bdi>', confusion)
    assert shown == [line["label"] for line in result.by_class("ProximalSVC")[:8]]  # the largest first
    assert confusion.count('scope="row"') == 9
    assert f"{n_seen - 8} other classes" in confusion
    total = sum(int(n.replace(",", "")) for n in re.findall(r"<b>([\d,]+)</b>", confusion))
    assert total == sum(line["support"] for line in result.by_class("ProximalSVC"))


def test_names_cannot_become_markup(result):
    page = render_report(result)
    assert "<b>SGD" not in page
    assert "&lt;b&gt;SGD &amp; co" in page


def test_hostile_names_of_everything_are_shown_and_not_obeyed():
    evil = "</script><script>alert(1)</script>\u202e\x1b]0;x\x07{{ 7*7 }}'\">"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({evil: rng.normal(size=3000), "b": rng.normal(size=3000)})
    frame["y"] = np.where(frame[evil] > 1, evil, f"other {evil}")
    result = prequential({evil: ProximalSVC()}, open_stream(frame, "y", chunk=100))
    result.stream_name = result.provenance["data"]["name"] = evil
    page = render_report(result)
    _parsed(page)
    assert page.count("<script") == 2
    assert "alert(1)" in page
    assert not CONTROL_CHARACTERS.search(page.replace("\n", ""))
    assert "49" not in re.search(r"<h1>.*?</h1>", page)[0]


def test_many_classes_are_shown_without_a_positive_one():
    stream = Gaussians(5000, n_classes=4)
    page = render_report(prequential(ProximalSVC(), stream))
    assert "share of the rows" in page
    assert "ROC" not in page
    _parsed(page)


def test_a_stream_that_was_too_short_still_has_a_report(tmp_path):
    result = prequential(ProximalSVC(), ArrayStream([[0.0], [1.0]], [0, 1]))
    path = write_report(result, tmp_path / "report.html")
    assert "Too few rows" in path.read_text(encoding="utf-8")


def test_a_model_that_always_says_the_same_has_a_report():
    class Stubborn:
        def partial_fit(self, X, y):
            self.classes_ = [0, 1]

        def predict(self, X):
            return X[:, 0].astype(int) * 0

    _parsed(render_report(prequential(Stubborn(), Gaussians(3000))))


def test_a_path_that_cannot_be_is_named(result, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match=r"report: .* cannot be written"):
        write_report(result, tmp_path / "file" / "report.html")


def test_ticks_are_round_and_within_the_range():
    for low, high in [(0.0, 1.0), (-3.2, 7.9), (0.0, 123_456.0), (0.0, 0.03)]:
        ticks = nice_ticks(low, high)
        assert 3 <= len(ticks) <= 8
        assert low <= ticks[0] < ticks[-1] <= high


def test_a_gap_in_a_curve_lifts_the_pen():
    nan = float("nan")
    assert path_of([(0, 0), (1, 1), (2, nan), (3, 3)]) == "M0.0 0.0L1.0 1.0M3.0 3.0"
