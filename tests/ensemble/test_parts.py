"""The parts of the committee: evidence, recent rows, views, judgements."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from steelyard.ensemble.cuts import choose_cut
from steelyard.ensemble.evidence import Evidence, Sides, align
from steelyard.ensemble.panel import judge
from steelyard.ensemble.recent import Block, Recent
from steelyard.ensemble.rules import LinearRule, MappedRule, Rows, Views
from steelyard.ensemble.views import FoldedView, RankView
from steelyard.ensemble.work import Work
from steelyard.features import RandomFeatures
from steelyard.proximal import ProximalSVC


def _block(rng, n, first=0, d=3):
    X = rng.normal(size=(n, d))
    numbers = np.arange(first, first + n)
    codes, weights, times, offered = rng.integers(0, 2, n), np.ones(n), np.zeros(n), np.ones(n, dtype=bool)
    return Block(X, X[:, :0], codes, weights, times, numbers, offered)


def test_recent_rows_are_those_of_a_plain_list():
    rng = np.random.default_rng(0)
    recent, plain = Recent.empty(3), []
    for step in range(40):
        block = _block(rng, int(rng.integers(1, 9)), first=14 * step)
        recent = recent.added(block)
        plain += zip(block.numbers.tolist(), block.codes.tolist(), strict=True)
        if step % 5 == 4:
            gone = set(rng.choice(len(plain), size=2, replace=False).tolist())
            recent = recent.without(np.array(sorted(gone)))
            plain = [row for place, row in enumerate(plain) if place not in gone]
        assert recent.block.numbers.tolist() == [number for number, _ in plain]
        assert recent.between(10, 200).numbers.tolist() == [n for n, _ in plain if 10 <= n < 200]
        wanted = {n for n, _ in plain[-7:]} | {
            n for code in (0, 1) for n in [number for number, c in plain if c == code][-5:]
        }
        assert recent.last(7, 5, 20).tolist() == sorted(n for n in wanted if n >= 20)
        if step % 7 == 6:
            kept = recent.last(30, 2, 0)
            recent = recent.trimmed(kept, 0.0)
            plain = [row for row in plain if row[0] in set(kept.tolist())]


@pytest.mark.parametrize("most", [0, 10, 100, 150, 400])
def test_thinning_offers_rare_rows_first_and_spaces_the_others(most):
    codes = np.array([0] * 280 + [1] * 15 + [2] * 5)
    X, ones = np.zeros((300, 2)), np.ones(300)
    block = Block(X, X[:, :0], codes, ones, np.zeros(300), np.arange(300), ones > 0)
    offered = block.thinned(most).offered
    assert offered.sum() == min(most, 300) or (most == 10 and 8 <= offered.sum() <= 12)
    if most >= 100:
        assert offered[codes > 0].all()
        assert np.diff(np.flatnonzero(offered[codes == 0])).max() <= -(-280 // (most - 20)) + 1


def test_adding_rows_leaves_the_one_before_as_it_was():
    rng = np.random.default_rng(0)
    before = Recent.empty(3).added(_block(rng, 5))
    held = before.block.X.copy()
    before.added(_block(rng, 50, first=5))
    np.testing.assert_array_equal(before.block.X, held)


def test_equal_rows_are_found_once_each_and_the_oldest_first():
    rng = np.random.default_rng(1)
    block = _block(rng, 4)
    twice = block.joined(block.numbered(4))
    recent = Recent.empty(3).added(twice)
    wanted = block.part(np.array([2, 2, 2]))
    assert recent.find(wanted.X, wanted.codes, wanted.weights).tolist() == [2, 6, -1]
    assert recent.find(wanted.X, 1 - wanted.codes, wanted.weights).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("n_rows", [1, 3, 16, 17, 200])
def test_a_row_is_seen_alone_as_among_others(n_rows):
    rng = np.random.default_rng(2)
    sample = np.column_stack(
        [rng.normal(size=500), rng.integers(0, 2, 500), np.zeros(500), rng.exponential(size=500)]
    )
    view = RankView.settled(sample)
    X = np.concatenate([sample[:200] * 1.5, [[9999.9, -5.0, 1.0, -1e100]]])[-n_rows:]
    seen = view.apply(np.ascontiguousarray(X))
    np.testing.assert_array_equal(seen, np.concatenate([view.apply(row[None]) for row in X]))
    assert np.isfinite(seen).all()


def test_ranks_keep_the_order_and_ignore_the_scale():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 1))
    seen, stretched = RankView.settled(x).apply(x), RankView.settled(np.exp(5 * x)).apply(np.exp(5 * x))
    assert (np.diff(seen[np.argsort(x[:, 0]), 0]) >= 0.0).all()
    assert np.median(np.abs(seen - stretched)) < 0.05  # the same at the knots; between them each is linear
    assert abs(seen.mean()) < 0.1
    assert abs(seen.std() - 1.0) < 0.1


def test_folding_keeps_inner_products_on_average():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 4000))
    folded = FoldedView(4000, 256, 0).apply(X)
    error = (folded @ folded.T - X @ X.T) / 4000.0
    assert np.sqrt(np.mean(np.square(error))) < 0.2


def test_evidence_keeps_the_last_rows_of_every_class():
    rng = np.random.default_rng(5)
    evidence, plain = Evidence(2), {0: [], 1: []}
    evidence.know([0, 1])
    for _ in range(60):
        n = int(rng.integers(1, 80))
        codes, scores = (rng.random(n) < 0.05).astype(int), rng.normal(size=(n, 2, 1))
        evidence.push(codes, scores, np.arange(n, dtype=np.uint64))
        for code in (0, 1):
            plain[code] += scores[codes == code, :, 0].tolist()
    (sides,) = evidence.sides()
    n_negative, n_positive = len(sides.negative), len(sides.positive)
    assert n_positive == 100  # however rare
    assert 900 < n_negative <= 1000
    np.testing.assert_array_equal(sides.positive, plain[1][-n_positive:])
    np.testing.assert_array_equal(sides.negative, plain[0][-n_negative:])
    assert sides.share == pytest.approx(0.05, abs=0.03)


def test_evidence_of_forgotten_rows_is_dropped():
    evidence = Evidence(1)
    evidence.know([0, 1])
    keys = np.arange(6, dtype=np.uint64)
    evidence.push(np.array([0, 1] * 3), np.arange(6.0).reshape(6, 1, 1), keys)
    evidence.drop(1, np.array([3, 99], dtype=np.uint64))
    (sides,) = evidence.sides()
    assert sides.positive[:, 0].tolist() == [1.0, 5.0]
    assert sides.negative[:, 0].tolist() == [0.0, 2.0, 4.0]


def test_scores_follow_classes_that_come_and_go():
    two = np.array([[1.0], [-2.0]])
    three = align(two, [3, 5], [3, 4, 5])
    np.testing.assert_array_equal(three, [[-1.0, np.nan, 1.0], [2.0, np.nan, -2.0]])
    np.testing.assert_array_equal(align(three, [3, 4, 5], [3, 5]), two)
    assert np.isnan(align(two, [3], [3, 5])).all()


def test_a_judgement_knows_auc_and_normal_scores():
    rng = np.random.default_rng(6)
    positive = np.column_stack([rng.normal(1.5, size=80), rng.normal(size=80)])
    negative = rng.normal(size=(400, 2))
    judgement = judge(Sides(positive, negative, 0.1), "gmean", np.ones(2))
    y = np.repeat([1, 0], [80, 400])
    for expert in (0, 1):
        scores = np.concatenate([positive[:, expert], negative[:, expert]])
        assert judgement.auc[expert] == pytest.approx(roc_auc_score(y, scores))
    assert judgement.weights[0] > 0.95
    x = 0.7  # ranked among both sides counted alike
    level = 0.5 * (positive[:, 0] <= x).mean() + 0.5 * (negative[:, 0] <= x).mean()
    assert np.interp(x, *judgement.tables[0]) == pytest.approx(ndtri(level), abs=0.05)


def test_whoever_says_nothing_is_not_heard():
    rng = np.random.default_rng(7)
    positive = np.column_stack([rng.normal(1.0, size=50), np.full(50, np.nan)])
    negative = np.column_stack([rng.normal(size=90), np.full(90, np.nan)])
    judgement = judge(Sides(positive, negative, 0.3), "gmean", np.ones(2))
    assert judgement.weights.tolist() == [1.0, 0.0]
    assert judge(Sides(positive[:4], negative, 0.3), "gmean", np.ones(2)) is None


def _plain_judgement(sides, priors):
    """Table and AUC of one expert after another, as the definition has them."""
    tables, auc = [], []
    for e in range(sides.positive.shape[1]):
        positive, negative = (side[~np.isnan(side[:, e]), e] for side in (sides.positive, sides.negative))
        ranks = rankdata(np.concatenate([positive, negative]))
        n = len(positive)
        auc.append((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(negative)))
        knots = np.unique(np.concatenate([positive, negative]))
        sides_at = [[(side < k).mean() + (side <= k).mean() for k in knots] for side in (positive, negative)]
        level = np.mean(sides_at, axis=0) / 2.0
        least = 0.5 / (n + len(negative))
        tables.append((knots, ndtri(np.clip(level, least, 1.0 - least))))
    weights = priors * np.exp(30.0 * (np.array(auc) - max(auc)))
    weights[np.array(auc) <= 0.5] = 0.0
    weights[weights < 0.01 * weights.max()] = 0.0
    return tables, np.array(auc), weights / weights.sum()


@pytest.mark.parametrize("seed", range(6))
def test_experts_judged_together_are_judged_as_one_by_one(seed):
    rng = np.random.default_rng(seed)
    n_positive, n_negative = rng.integers(8, 60), rng.integers(20, 300)
    positive, negative = rng.normal(0.6, size=(n_positive, 4)), rng.normal(size=(n_negative, 4))
    positive[:, 1], negative[:, 1] = positive[:, 1].round(), negative[:, 1].round()  # ties
    positive[:, 2], negative[:, 2] = positive[:, 2].round(1), 0.3
    if seed % 2:
        positive[: n_positive // 3, 3] = negative[: n_negative // 2, 3] = np.nan
    sides = Sides(positive, negative, 0.1)
    judgement = judge(sides, "gmean", np.ones(4))
    tables, auc, weights = _plain_judgement(sides, np.ones(4))
    np.testing.assert_allclose(judgement.auc, auc, rtol=1e-12)
    np.testing.assert_allclose(judgement.weights, weights, rtol=1e-9)
    total = {}
    for name, side in (("positive", positive), ("negative", negative)):
        z = [np.nan_to_num(np.interp(side[:, e], *tables[e])) * weights[e] for e in range(4)]
        total[name] = np.sum(z, axis=0)
        np.testing.assert_allclose(judgement.scores(side), total[name], rtol=1e-9, atol=1e-12)
    # Of the cut with the largest G-mean half the way is gone; prices and budgets are kept to the letter.
    for threshold, way in (("gmean", 0.5), ({"miss": 20, "alarm": 1}, 1.0), ({"alarms": 0.05}, 1.0)):
        best = choose_cut(total["positive"], total["negative"], threshold, 0.1)
        assert judge(sides, threshold, np.ones(4)).cut == pytest.approx(way * best)


def test_evidence_that_goes_on_leaves_the_one_before_as_it_was():
    rng = np.random.default_rng(8)
    before = Evidence(2)
    before.know([0, 1])
    before.push(rng.integers(0, 2, 50), rng.normal(size=(50, 2, 1)), np.arange(50, dtype=np.uint64))
    kept = before.recent()[1].copy()
    after = before.copy()
    for _ in range(60):
        after.push(rng.integers(0, 2, 50), rng.normal(size=(50, 2, 1)), np.arange(50, dtype=np.uint64))
    np.testing.assert_array_equal(before.recent()[1], kept)
    again = before.copy()  # as after a call that failed
    scores = rng.normal(size=(50, 2, 1))
    again.push(rng.integers(0, 2, 50), scores, np.arange(50, dtype=np.uint64))
    np.testing.assert_array_equal(again.recent()[1][50:], scores)


def test_ranks_are_those_of_numpy_and_the_same_alone_and_among_others():
    rng = np.random.default_rng(5)
    sample = np.column_stack([rng.normal(size=400), rng.integers(0, 3, 400), np.zeros(400)])
    view = RankView.settled(sample)
    X = np.vstack([sample[:50], 100.0 * rng.normal(size=(50, 3)), view.knots[::9]])
    expected = np.column_stack([np.interp(X[:, c], *_distinct(view, c)) for c in range(3)])
    seen = view.apply(X)
    np.testing.assert_allclose(seen, expected, rtol=0.0, atol=1e-12)
    alone = np.vstack([view.apply(X[row : row + 1]) for row in range(len(X))])
    assert np.array_equal(seen, alone)


def _distinct(view, column):
    knots, first = np.unique(view.knots[:, column], return_index=True)
    return knots, view.values[first, column]


def test_normal_scores_are_sums_of_tables_and_unknown_scores_count_nothing():
    rng = np.random.default_rng(6)
    sides = Sides(np.round(rng.normal(0.7, 1, (60, 3)), 1), np.round(rng.normal(0, 1, (300, 3)), 1), 0.2)
    judged = judge(sides, "gmean", np.ones(3))
    raw = np.round(rng.normal(0, 3, (200, 3)), 1)
    raw[::7, 1] = np.nan
    expected = sum(
        weight * np.nan_to_num(np.interp(raw[:, e], *judged.tables[e]))
        for e, weight in enumerate(judged.weights)
    )
    assert (judged.weights > 0.0).sum() > 1
    np.testing.assert_allclose(judged.scores(raw), expected, rtol=0.0, atol=1e-12)


def test_planes_inside_the_map_are_those_over_mapped_rows():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(600, 6)), rng.integers(0, 3, 600)
    views = Views(RankView.settled(X), RandomFeatures(80).fit(RankView.settled(X).apply(X)))
    rows = Rows(X, views)
    learner = ProximalSVC(standardize=False).fit(views.mapped(rows.seen("ranks")), y)
    rule = MappedRule.over(views, LinearRule([0, 1, 2], "map", learner.coef_, learner.intercept_))
    expected = learner.decision_function(views.mapped(rows.seen("ranks")))
    np.testing.assert_allclose(rule.scores(rows), expected, rtol=0.0, atol=1e-3 * np.abs(expected).max())


def test_in_a_long_stream_less_is_done_for_a_row_by_those_who_took_part_before():
    for n_classes in (2, 5, 12):
        short, long = Work("auto", n_classes), Work("auto", n_classes, is_long=True)
        assert 0.1 <= long.offered_share < short.offered_share
        assert long.regrows_every(5000, 30) > short.regrows_every(5000, 30)
        assert long.solves_every(300) > short.solves_every(300)
        assert {name for name in ("kernel", "trees", "mapped") if long.wants(name)} == {
            name for name in ("kernel", "trees", "mapped") if short.wants(name)
        }
        assert "long stream" in long.spared()["kernel"]
        assert "long stream" not in short.spared().get("kernel", "")
    assert Work(90.0, 2, is_long=True).offered_share == Work(90.0, 2).offered_share


def test_shortened_evidence_has_the_last_rows_and_some_of_every_class():
    evidence, rng = Evidence(2), np.random.default_rng(8)
    evidence.know([0, 1])
    places = (np.arange(900) % 45 == 0).astype(np.int64)  # one in 45
    evidence.push(places, rng.normal(size=(900, 2, 1)), np.arange(900, dtype=np.uint64))
    before, scores = evidence.recent()
    evidence.shorten()
    after, kept = evidence.recent()
    assert (before == 1).sum() == (after == 1).sum() == 20  # there are no more than that
    assert (after == 0).sum() == (places[-200:] == 0).sum()
    assert np.array_equal(kept[after == 0], scores[before == 0][-(after == 0).sum() :])
