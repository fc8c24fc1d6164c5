"""The report: complete, self-contained, and sound for two classes, many, and hardly any rows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from sklearn.linear_model import SGDClassifier

from steelyard import ProximalSVC
from steelyard.evaluation import SklearnPeer, prequential
from steelyard.report import render_report, write_report
from steelyard.report.svg import nice_ticks, path_of
from steelyard.streams import ArrayStream, Gaussians, demo_stream


class Balance(HTMLParser):
    """Notes tags that are not closed, and addresses that a browser would ask for."""

    VOID = frozenset({"meta", "link", "br", "rect", "circle", "line", "path", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.n_charts = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.n_charts += tag == "svg"
        self.addresses += [v for k, v in attributes if k in {"src", "href", "xlink:href"}]
        if tag not in self.VOID:
            self.open.append(tag)

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


def test_every_chart_is_there(result):
    page = render_report(result)
    for heading in (
        "G-mean over the last 1,000 rows",
        "Sensitivity",
        "What was taken for what",
        "Scores of both sides",
        "ROC",
        "Precision and recall",
        "The cost of other thresholds",
        "Throughput",
        "the concept drifts",
    ):
        assert heading in page
    assert _parsed(page).n_charts >= 16


def test_names_cannot_become_markup(result):
    page = render_report(result)
    assert "<b>SGD" not in page
    assert "&lt;b&gt;SGD &amp; co" in page


def test_many_classes_are_shown_without_a_positive_one():
    stream = Gaussians(5000, n_classes=4)
    page = render_report(prequential(ProximalSVC(), stream))
    assert "share of each class" in page
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
