"""Report: its sections, no network access, and runs with two, many or too few classes or rows."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier

from steelyard import KOIL, ProximalSVC
from steelyard._visible import CONTROL_CHARACTERS
from steelyard.evaluation import PrequentialEvaluator, SklearnPeer, prequential
from steelyard.report import render_report, write_report
from steelyard.report.svg import Frame, nice_ticks, path_of
from steelyard.report.text import MEASURES
from steelyard.streams import ArrayStream, Gaussians, demo_stream
from steelyard.tables import open_stream


class Balance(HTMLParser):
    """HTML parser that records unclosed tags and addresses that a browser would load."""

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
        """Ignore self-closing tags."""

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


def test_report_shows_small_contributions_with_enough_digits():
    rng = np.random.default_rng(0)
    y = (rng.random(900) < 0.3).astype(int)
    X = rng.normal(size=(900, 3)) + 1.5 * y[:, None]
    found = prequential(KOIL(C=1e-4, random_state=0), ArrayStream(X, y, chunk=100), positive=1)
    alarm = found.last_alarms("KOIL")[-1]
    assert 0.0 < abs(alarm["score"]) < 0.005
    sizes = re.findall(r'class="value">([^<]+)</span></li>', render_report(found))
    assert sizes
    assert not {"+0.00", "-0.00"} & set(sizes)


def test_report_counts_tested_rows_without_warmup_and_rows_before_the_first_labels():
    all_tested = "rows, each tested before it is learned"
    for settings, n_tested in (({"warmup": 300}, 1700), ({"delay": 500}, 1400)):
        found = prequential(ProximalSVC(), demo_stream(2000, chunk=100), **settings)
        assert found.summary()[0]["tested"] == n_tested
        page = render_report(found)
        assert all_tested not in page
        assert f"rows, {n_tested:,} of them tested before they are learned" in page
        assert f"{2000 - n_tested:,} rows could not be tested" in page


def test_report_loads_nothing_from_the_network(result):
    page = render_report(result)
    assert _parsed(page).addresses == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", page)


def test_report_has_all_sections(result):
    page = render_report(result)
    for heading in (
        "G-mean over the last 1,000 rows",
        "Sensitivity",
        "Events",
        "Most important features of",
        "Results by class",
        "Confusion matrix",
        "Score distribution",
        "ROC curve",
        "Precision-recall curve",
        "Cost of other thresholds",
        "Speed",
        "concept drift",
        "How to reproduce this report",
    ):
        assert heading in page
    assert _parsed(page).n_charts >= 16


def test_headline_counts_positive_rows_found_and_false_alarms(result):
    (line,) = [line for line in result.by_class("balanced") if line["label"] == result.positive]
    found, false = round(100 * line["recall"]), round(100 * (1 - line["precision"]))
    assert (
        f"<h1>Finds {found} of 100 rows of class “1”; {false} of 100 alarms are false</h1>"
        in render_report(result)
    )


def test_details_of_best_model_come_first_and_are_expanded():
    models = {"unweighted": ProximalSVC(class_weight=None), "balanced": ProximalSVC()}
    page = render_report(prequential(models, demo_stream(6000)))
    details = re.findall(r"<details( open)?><summary><bdi>(\w+)", page)
    assert details == [(" open", "balanced"), ("", "unweighted")]


def test_report_explains_every_measure(result):
    page = render_report(result)
    for key in ("g_mean", "sensitivity", "specificity", "auc", "f1"):
        assert MEASURES[key].meaning in page
    heads = re.search(r'<table class="models">.*?</thead>', page, re.DOTALL)[0]
    assert heads.count("<small>") == heads.count("<th ")


def test_events_describe_known_drift():
    page = render_report(prequential(ProximalSVC(), demo_stream(12_000)))
    events = re.search(r'<ol class="events">.*?</ol>', page, re.DOTALL)[0]
    assert re.search(r"Known concept drift until row [\d,]+\. The G-mean of “ProximalSVC” fell from", events)
    assert "(sensitivity from" in events
    assert "It recovered after about" in events or "It did not recover" in events


def test_axis_shows_dates_if_rows_have_times():
    rng = np.random.default_rng(0)
    y = rng.random(4000) < 0.2
    stream = ArrayStream(rng.normal(size=(4000, 2)) + y[:, None], y, time=1.7e9 + 3600.0 * np.arange(4000))
    page = render_report(prequential(ProximalSVC(), stream))
    ticks = re.findall(r'class="tick xtick"[^>]*>([^<]*)<', page)
    assert "14 Nov 2023" in ticks  # date of the first row
    assert '[4000, "29 Apr 2024"]' in page


def test_axis_shows_elapsed_time_if_times_are_small_numbers():
    rng = np.random.default_rng(0)
    y = rng.random(3000) < 0.2
    stream = ArrayStream(rng.normal(size=(3000, 2)) + y[:, None], y, time=60.0 * np.arange(3000))
    page = render_report(prequential(ProximalSVC(), stream))
    assert '[3000, "2 d 01:59"]' in page
    assert "Jan" not in "".join(re.findall(r'class="tick xtick"[^>]*>([^<]*)<', page))


def test_axis_does_not_start_at_zero_if_all_values_are_high():
    rng = np.random.default_rng(0)
    y = rng.random(3000) < 0.2
    page = render_report(
        prequential(ProximalSVC(), ArrayStream(rng.normal(size=(3000, 2)) + 4 * y[:, None], y))
    )
    assert re.search(r"G-mean \(axis starts at 0\.[6-9]\)", page)


def test_value_between_two_nan_values_is_drawn_as_point():
    frame = Frame(100, 100, (0, 4), (0, 1), "one value")
    frame.line([0, 1, 2, 3, 4], [math.nan, 0.5, math.nan, 0.5, 0.5], "series0")
    assert frame.svg().count('class="point series0"') == 1


def test_headline_of_stream_with_one_class_says_nothing_could_be_measured():
    X = np.random.default_rng(0).normal(size=(300, 2))
    page = render_report(prequential(ProximalSVC(), ArrayStream(X, ["ill"] * 300)))
    assert "<h1>All rows are of class “ill”, so nothing could be measured</h1>" in page
    assert "G-mean over the last" not in page
    _parsed(page)


def test_report_of_evaluated_model_says_that_the_model_did_not_learn():
    rng = np.random.default_rng(0)
    y = rng.random(2000) < 0.2
    X = rng.normal(size=(2000, 2)) + y[:, None]
    evaluator = PrequentialEvaluator({"model": ProximalSVC().fit(X, y)}, learns=False)
    evaluator.run(ArrayStream(X, y))
    page = render_report(evaluator.result(None))
    assert "it did not learn these rows" in page
    assert "before it was learned" not in page


def test_features_are_listed_by_importance():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"noise": rng.normal(size=4000), "amount": rng.normal(size=4000) * 50})
    frame["y"] = np.where(frame["amount"] > 60, "fraud", "ok")
    page = render_report(prequential(ProximalSVC(), open_stream(frame, "y", chunk=200)))
    names = re.findall(r'<span class="what"><bdi>(\w+)', page)
    assert names == ["amount", "noise"]


def test_report_of_run_that_ended_early_has_warning(result):
    result.ended = "rows.csv, line 9: a value is <missing>."
    try:
        page = render_report(result)
    finally:
        result.ended = None
    assert "The run ended early." in page
    assert "a value is &lt;missing&gt;." in page


def test_report_shows_column_notices():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": np.arange(1500), "a": rng.normal(size=1500)})
    frame["y"] = np.where(frame["a"] > 1, "bad", "ok")
    page = render_report(prequential(ProximalSVC(), open_stream(frame, "y")))
    assert "Column &#39;n&#39; counts the rows, as an index does (--drop n)." in page


def test_report_lists_version_seed_and_parameters(result):
    page = render_report(result)
    facts = page[page.index("How to reproduce this report") :]
    for fact in (
        "seed",
        "written by",
        f"steelyard {version('steelyard')}",
        "parameters of “balanced”",
        "C=1.0",
    ):
        assert fact in facts


@pytest.mark.parametrize("n_classes", [22, 100])
def test_report_with_many_classes_shows_largest_and_collapses_others(n_classes):
    rng = np.random.default_rng(0)
    sizes = 1.0 / np.arange(1, n_classes + 1)
    y = rng.choice(n_classes, size=8000, p=sizes / sizes.sum())
    X = rng.normal(size=(8000, 4)) + np.column_stack([y, y % 5, y % 7, -y])
    result = prequential(ProximalSVC(), ArrayStream(X, np.array([f"c{k}" for k in y])))
    page = render_report(result)
    _parsed(page)
    assert re.search(r"<h1>Finds \d+ of 100 rows of a class, on average over \d+ classes</h1>", page)
    assert "--positive LABEL" in page
    tables = re.findall(r'<table class="classes">.*?</table>', page, re.DOTALL)
    n_rows = [table.count("<tr>") - 1 for table in tables]
    n_seen = len(result.by_class("ProximalSVC"))
    assert n_rows == [12, n_seen - 12]
    supports = [int(n.replace(",", "")) for n in re.findall(r"</bdi></td><td>([\d,]+)<", tables[0])]
    assert supports == sorted(supports, reverse=True)
    confusion = re.search(r'<table class="confusion">.*?</table>', page, re.DOTALL)[0]
    shown = re.findall(r'<th scope="row"><bdi>(\w+)</bdi>', confusion)
    assert shown == [line["label"] for line in result.by_class("ProximalSVC")[:8]]  # largest first
    assert confusion.count('scope="row"') == 9
    assert f"{n_seen - 8} other classes" in confusion
    total = sum(int(n.replace(",", "")) for n in re.findall(r"<b>([\d,]+)</b>", confusion))
    assert total == sum(line["support"] for line in result.by_class("ProximalSVC"))


def test_model_names_are_escaped(result):
    page = render_report(result)
    assert "<b>SGD" not in page
    assert "&lt;b&gt;SGD &amp; co" in page


def test_markup_and_control_characters_in_all_names_are_escaped():
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


def test_report_without_positive_class_has_no_roc_curve():
    stream = Gaussians(5000, n_classes=4)
    page = render_report(prequential(ProximalSVC(), stream))
    assert "share of the rows" in page
    assert "ROC" not in page
    _parsed(page)


def test_report_of_stream_with_two_rows_says_too_few_rows(tmp_path):
    result = prequential(ProximalSVC(), ArrayStream([[0.0], [1.0]], [0, 1]))
    path = write_report(result, tmp_path / "report.html")
    assert "Too few rows" in path.read_text(encoding="utf-8")


def test_report_of_model_that_always_predicts_one_class_is_valid_html():
    class ConstantModel:
        def partial_fit(self, X, y):
            self.classes_ = [0, 1]

        def predict(self, X):
            return X[:, 0].astype(int) * 0

    _parsed(render_report(prequential(ConstantModel(), Gaussians(3000))))


def test_write_report_to_impossible_path_raises_with_path(result, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match=r"report: .* cannot be written"):
        write_report(result, tmp_path / "file" / "report.html")


def test_nice_ticks_are_within_range():
    for low, high in [(0.0, 1.0), (-3.2, 7.9), (0.0, 123_456.0), (0.0, 0.03)]:
        ticks = nice_ticks(low, high)
        assert 3 <= len(ticks) <= 8
        assert low <= ticks[0] < ticks[-1] <= high


def test_svg_path_starts_new_segment_after_nan():
    nan = float("nan")
    assert path_of([(0, 0), (1, 1), (2, nan), (3, 3)]) == "M0.0 0.0L1.0 1.0M3.0 3.0"
