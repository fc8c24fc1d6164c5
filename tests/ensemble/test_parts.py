"""Parts of the ensemble: row buffer, score buffer, views, calibration and weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from steelyard import StreamClassifier
from steelyard._concurrency import shallow_copy
from steelyard.ensemble.experts import EXPERTS, Stream
from steelyard.ensemble.experts.base import CostBudget
from steelyard.ensemble.experts.incremental import KernelExpert, LinearRule, MappedLinearRule, evenly_sampled
from steelyard.ensemble.experts.lookup import NearestNeighborRule
from steelyard.ensemble.mixing import weigh_experts
from steelyard.ensemble.row_buffer import Block, RowBuffer, last_rows
from steelyard.ensemble.scores import ScoreBuffer, TwoSides, align
from steelyard.ensemble.views import HashedView, RankView, TransformedRows, Views
from steelyard.features import RandomFeatures
from steelyard.proximal import ProximalSVC
from steelyard.thresholds import choose_threshold


def _block(rng, n, first=0, d=3):
    return Block.from_rows(rng.normal(size=(n, d)), rng.integers(0, 2, n), first=first)


def test_row_buffer_matches_a_list_after_the_same_operations():
    rng = np.random.default_rng(0)
    buffer, plain = RowBuffer.empty(3), []
    for step in range(40):
        block = _block(rng, int(rng.integers(1, 9)), first=14 * step)
        buffer = buffer.append(block)
        plain += zip(block.numbers.tolist(), block.codes.tolist(), strict=True)
        if step % 5 == 4:
            gone = set(rng.choice(len(plain), size=2, replace=False).tolist())
            buffer = buffer.without(np.array(sorted(gone)))
            plain = [row for place, row in enumerate(plain) if place not in gone]
        assert buffer.numbers.tolist() == [number for number, _ in plain]
        assert buffer.between(10, 200).numbers.tolist() == [n for n, _ in plain if 10 <= n < 200]
        wanted = {n for n, _ in plain[-7:]} | {
            n for code in (0, 1) for n in [number for number, c in plain if c == code][-5:]
        }
        assert last_rows(buffer.numbers, buffer.codes, 7, 5, 20).tolist() == sorted(
            n for n in wanted if n >= 20
        )
        if step % 7 == 6:
            kept = last_rows(buffer.numbers, buffer.codes, 30, 2)
            buffer = buffer.keep(kept, 0.0)
            plain = [row for row in plain if row[0] in set(kept.tolist())]


@pytest.mark.parametrize("n_sampled", [0, 10, 100, 150, 400])
def test_even_sample_has_all_rare_rows_and_evenly_spaced_other_rows(n_sampled):
    codes = np.array([0] * 280 + [1] * 15 + [2] * 5)
    sampled = np.zeros(300, dtype=bool)
    sampled[evenly_sampled(codes, n_sampled)] = True
    assert sampled.sum() == min(n_sampled, 300) or (n_sampled == 10 and 8 <= sampled.sum() <= 12)
    if n_sampled >= 100:
        assert sampled[codes > 0].all()
        assert np.diff(np.flatnonzero(sampled[codes == 0])).max() <= -(-280 // (n_sampled - 20)) + 1


def test_append_to_row_buffer_leaves_previous_buffer_unchanged():
    rng = np.random.default_rng(0)
    before = RowBuffer.empty(3).append(_block(rng, 5))
    held = before.block.X.copy()
    before.append(_block(rng, 50, first=5))
    np.testing.assert_array_equal(before.block.X, held)


def test_row_buffer_find_matches_duplicates_one_to_one_oldest_first():
    rng = np.random.default_rng(1)
    block = _block(rng, 4)
    twice = block.joined(replace(block, numbers=block.numbers + 4))
    buffer = RowBuffer.empty(3).append(twice)
    wanted = block.take(np.array([2, 2, 2]))
    assert buffer.find(wanted).tolist() == [2, 6, -1]
    assert buffer.find(replace(wanted, codes=1 - wanted.codes)).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("n_rows", [1, 3, 16, 17, 200])
def test_rank_transform_of_a_row_does_not_depend_on_other_rows(n_rows):
    rng = np.random.default_rng(2)
    sample = np.column_stack(
        [rng.normal(size=500), rng.integers(0, 2, 500), np.zeros(500), rng.exponential(size=500)]
    )
    view = RankView.fit(sample)
    X = np.concatenate([sample[:200] * 1.5, [[9999.9, -5.0, 1.0, -1e100]]])[-n_rows:]
    seen = view.apply(np.ascontiguousarray(X))
    np.testing.assert_array_equal(seen, np.concatenate([view.apply(row[None]) for row in X]))
    assert np.isfinite(seen).all()


def test_rank_transform_keeps_order_and_ignores_scale():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 1))
    seen, stretched = RankView.fit(x).apply(x), RankView.fit(np.exp(5 * x)).apply(np.exp(5 * x))
    assert (np.diff(seen[np.argsort(x[:, 0]), 0]) >= 0.0).all()
    assert np.median(np.abs(seen - stretched)) < 0.05  # both are equal at the knots and linear between them
    assert abs(seen.mean()) < 0.1
    assert abs(seen.std() - 1.0) < 0.1


def test_feature_hashing_keeps_inner_products_on_average():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 4000))
    hashed = HashedView(4000, 256, 0).apply(X)
    error = (hashed @ hashed.T - X @ X.T) / 4000.0
    assert np.sqrt(np.mean(np.square(error))) < 0.2


def test_score_buffer_keeps_the_last_rows_of_every_class():
    rng = np.random.default_rng(5)
    buffer, plain = ScoreBuffer(2), {0: [], 1: []}
    buffer.set_classes([0, 1])
    for _ in range(60):
        n = int(rng.integers(1, 80))
        codes, scores = (rng.random(n) < 0.05).astype(int), rng.normal(size=(n, 2, 1))
        buffer.push(codes, scores, np.arange(n, dtype=np.uint64))
        for code in (0, 1):
            plain[code] += scores[codes == code, :, 0].tolist()
    (sides,) = buffer.sides()
    n_negative, n_positive = len(sides.negative), len(sides.positive)
    assert n_positive == 100  # independent of the share of the class
    assert 900 < n_negative <= 1000
    np.testing.assert_array_equal(sides.positive, plain[1][-n_positive:])
    np.testing.assert_array_equal(sides.negative, plain[0][-n_negative:])
    assert sides.share == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize(
    ("every", "n_rows"), [(20, 1000), (50, 1000), (100, 2000), (150, 3000), (1000, 4000)]
)
def test_score_buffer_keeps_more_rows_if_one_class_is_rare(every, n_rows):
    buffer, n = ScoreBuffer(1), 20_000
    buffer.set_classes([0, 1])
    places = (np.arange(n) % every == every // 2).astype(np.int64)
    for part in np.split(np.arange(n), 40):
        buffer.push(places[part], np.zeros((500, 1, 1)), part.astype(np.uint64))
    (sides,) = buffer.sides()
    assert len(sides.negative) == pytest.approx(n_rows, rel=0.12)
    assert len(sides.positive) == min(100, n // every)


def test_dropping_forgotten_rows_removes_their_scores_from_score_buffer():
    buffer = ScoreBuffer(1)
    buffer.set_classes([0, 1])
    keys = np.arange(6, dtype=np.uint64)
    buffer.push(np.array([0, 1] * 3), np.arange(6.0).reshape(6, 1, 1), keys)
    buffer.drop(1, np.array([3, 99], dtype=np.uint64))
    (sides,) = buffer.sides()
    assert sides.positive[:, 0].tolist() == [1.0, 5.0]
    assert sides.negative[:, 0].tolist() == [0.0, 2.0, 4.0]


def test_align_moves_scores_to_columns_of_new_class_list():
    two = np.array([[1.0], [-2.0]])
    three = align(two, [3, 5], [3, 4, 5])
    np.testing.assert_array_equal(three, [[-1.0, np.nan, 1.0], [2.0, np.nan, -2.0]])
    np.testing.assert_array_equal(align(three, [3, 4, 5], [3, 5]), two)
    assert np.isnan(align(two, [3], [3, 5])).all()


def test_copy_of_score_buffer_leaves_the_original_unchanged():
    rng = np.random.default_rng(8)
    before = ScoreBuffer(2)
    before.set_classes([0, 1])
    before.push(rng.integers(0, 2, 50), rng.normal(size=(50, 2, 1)), np.arange(50, dtype=np.uint64))
    kept = before.recent()[1].copy()
    after = shallow_copy(before)
    for _ in range(60):
        after.push(rng.integers(0, 2, 50), rng.normal(size=(50, 2, 1)), np.arange(50, dtype=np.uint64))
    np.testing.assert_array_equal(before.recent()[1], kept)
    again = shallow_copy(before)  # a call after a failed call starts from such a copy
    scores = rng.normal(size=(50, 2, 1))
    again.push(rng.integers(0, 2, 50), scores, np.arange(50, dtype=np.uint64))
    np.testing.assert_array_equal(again.recent()[1][50:], scores)


def test_rank_transform_equals_numpy_interpolation():
    rng = np.random.default_rng(5)
    sample = np.column_stack([rng.normal(size=400), rng.integers(0, 3, 400), np.zeros(400)])
    view = RankView.fit(sample)
    X = np.vstack([sample[:50], 100.0 * rng.normal(size=(50, 3)), view.knots[::9]])
    expected = np.column_stack([np.interp(X[:, c], *_distinct(view, c)) for c in range(3)])
    seen = view.apply(X)
    np.testing.assert_allclose(seen, expected, rtol=0.0, atol=1e-12)
    alone = np.vstack([view.apply(X[row : row + 1]) for row in range(len(X))])
    assert np.array_equal(seen, alone)


def _distinct(view, column):
    knots, first = np.unique(view.knots[:, column], return_index=True)
    return knots, view.values[first, column]


def test_mapped_linear_rule_matches_decision_function_of_mapped_rows():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(600, 6)), rng.integers(0, 3, 600)
    views = Views(RankView.fit(X), RandomFeatures(80).fit(RankView.fit(X).apply(X)))
    rows = TransformedRows(X, views)
    learner = ProximalSVC(standardize=False).fit(rows.mapped, y)
    rule = MappedLinearRule.over(views.map, LinearRule([0, 1, 2], learner.coef_, learner.intercept_))
    expected = learner.decision_function(rows.mapped)
    np.testing.assert_allclose(rule.scores(rows), expected, rtol=0.0, atol=1e-3 * np.abs(expected).max())


def test_cost_budget_of_long_stream_reduces_work_and_keeps_all_experts():
    experts = [config.make(config) for config in EXPERTS]
    for n_classes in (2, 5, 12):
        short, long = CostBudget("auto", n_classes), CostBudget("auto", n_classes, is_long=True)
        assert 0.1 <= KernelExpert.sampled_share(long) < KernelExpert.sampled_share(short)
        assert long.interval_rows(1000.0, 0.1) > short.interval_rows(1000.0, 0.1)
        assert [e.is_affordable(long) for e in experts] == [e.is_affordable(short) for e in experts]
        assert "the stream is long" in experts[3].limits(long)
        assert "the stream is long" not in experts[3].limits(short)
    long, short = CostBudget(90.0, 2, is_long=True), CostBudget(90.0, 2)
    assert KernelExpert.sampled_share(long) == KernelExpert.sampled_share(short)


def _stream(n_seen):
    return Stream(RowBuffer.empty(3), 0, n_seen, Views(), CostBudget("auto", 2))


@pytest.mark.parametrize(
    ("number", "n_features", "waits"), [(2, 300, True), (0, 300, True), (0, 20, False), (1, 300, False)]
)
def test_large_system_over_all_rows_is_solved_again_after_five_percent_more_rows(number, n_features, waits):
    expert = EXPERTS[number].make(EXPERTS[number])
    expert.rule, expert.state = object(), SimpleNamespace(n_features=n_features)
    expert.n_seen_at_rule, expert.n_seen_at_update = 10_000, 10_400
    assert expert.needs_rule(_stream(10_400)) == (not waits)
    expert.n_seen_at_update = 10_501
    assert expert.needs_rule(_stream(10_501))


def test_shortened_score_buffer_keeps_recent_rows_of_every_class():
    buffer, rng = ScoreBuffer(2), np.random.default_rng(8)
    buffer.set_classes([0, 1])
    places = (np.arange(900) % 45 == 0).astype(np.int64)  # one row in 45 is positive
    buffer.push(places, rng.normal(size=(900, 2, 1)), np.arange(900, dtype=np.uint64))
    before, scores = buffer.recent()
    buffer.shorten()
    after, kept = buffer.recent()
    assert (before == 1).sum() == (after == 1).sum() == 20  # all positive rows
    assert (after == 0).sum() == (places[-200:] == 0).sum()
    assert np.array_equal(kept[after == 0], scores[before == 0][-(after == 0).sum() :])


# -- calibration and weights ------------------------------------------------------------------------------


def _sides(seed=6, shift=(1.5, 0.0), n_positive=80, n_negative=400):
    rng = np.random.default_rng(seed)
    positive = rng.normal(size=(n_positive, len(shift))) + np.array(shift)
    return TwoSides(positive, rng.normal(size=(n_negative, len(shift))), 0.1)


def test_expert_weights_report_auc_and_favour_the_better_expert():
    sides = _sides()
    weights = weigh_experts(sides, "gmean", np.ones(2))
    y = np.repeat([1, 0], [80, 400])
    for expert in (0, 1):
        scores = np.concatenate([sides.positive[:, expert], sides.negative[:, expert]])
        assert weights.auc[expert] == pytest.approx(roc_auc_score(y, scores))
    assert weights.weights[0] > 0.95
    assert weights.weights.sum() == pytest.approx(1.0)


def test_calibrated_log_odds_of_normal_scores_are_linear_and_correct():
    # Two normal distributions at distance 1.5: the log-odds are 1.5 * (x - 0.75).
    weights = weigh_experts(_sides(shift=(1.5,), n_positive=4000, n_negative=4000), "gmean", np.ones(1))
    x = np.linspace(-1.0, 2.5, 9)
    np.testing.assert_allclose(weights.scores(x[:, None]), 1.5 * (x - 0.75), atol=0.25)


def test_log_odds_of_scores_beyond_all_recent_scores_keep_their_order():
    weights = weigh_experts(_sides(shift=(1.5,)), "gmean", np.ones(1))
    x = np.concatenate([-np.logspace(7, 0, 40), np.logspace(0, 7, 40)])
    assert (np.diff(weights.scores(x[:, None])) > 0.0).all()


def test_expert_without_scores_or_with_prior_zero_gets_no_weight():
    sides = _sides(shift=(1.0, 1.0, 1.0))
    sides.positive[:, 1] = sides.negative[:, 1] = np.nan
    weights = weigh_experts(sides, "gmean", np.array([1.0, 1.0, 0.0]))
    assert weights.weights.tolist() == [1.0, 0.0, 0.0]
    assert weigh_experts(TwoSides(sides.positive[:1], sides.negative, 0.3), "gmean", np.ones(3)) is None


def test_nan_score_of_an_expert_adds_nothing_to_the_weighted_sum():
    sides = _sides(shift=(1.0, 0.9, 0.8))
    weights = weigh_experts(sides, "gmean", np.ones(3))
    raw = np.random.default_rng(0).normal(size=(50, 3))
    raw[::7, 1] = np.nan
    expected = sum(
        weight * np.nan_to_num(np.interp(raw[:, e], *weights.tables[e]))
        for e, weight in enumerate(weights.weights)
    )
    assert (weights.weights > 0.0).sum() > 1
    np.testing.assert_allclose(weights.scores(raw), expected, rtol=0.0, atol=1e-9)


def test_expert_with_better_top_ranks_gets_more_weight_at_equal_auc():
    rng = np.random.default_rng(1)
    negative = rng.normal(size=(2000, 2))
    positive = rng.normal(size=(200, 2)) + 1.2
    positive[:100, 0] += 4.0  # half of the positives are found without false alarms
    positive[100:, 0] -= 0.8
    weights = weigh_experts(TwoSides(positive, negative, 0.01), "gmean", np.ones(2))
    assert abs(weights.auc[0] - weights.auc[1]) < 0.06
    assert weights.weights[0] > 2.0 * weights.weights[1]


@pytest.mark.parametrize("threshold", ["gmean", "kappa", {"miss": 20, "alarm": 1}, {"alarms": 0.05}])
def test_threshold_is_chosen_on_the_weighted_sum(threshold):
    sides = _sides(shift=(1.2, 0.8))
    weights = weigh_experts(sides, threshold, np.ones(2))
    totals = [weights.scores(side) for side in sides[:2]]
    best = choose_threshold(*totals, threshold, 0.1)
    assert weights.threshold == pytest.approx(0.5 * best if threshold == "gmean" else best, abs=1e-6)


@pytest.mark.parametrize("threshold", [-30.0, -2.5, -1e-3, 0.0, 0.3, 1.0, 4.0, 28e6])
def test_decisions_are_zero_at_the_threshold_and_equal_the_totals_far_from_it(threshold):
    weights = replace(weigh_experts(_sides(shift=(1.0,)), "gmean", np.ones(1)), threshold=threshold)
    grid = np.concatenate([np.linspace(-40.0, 40.0, 4001), threshold + np.linspace(-3.0, 3.0, 601)])
    totals = np.unique(grid.round(6))
    decisions = weights.decisions(totals)
    assert ((decisions > 0.0) == (totals > threshold)).all()
    assert (np.diff(decisions) > 0.0).all()
    nearest = np.array([np.nextafter(threshold, -np.inf), threshold, np.nextafter(threshold, np.inf)])
    assert (weights.decisions(nearest) > 0.0).tolist() == [False, False, True]
    far = (totals * threshold > 0) & (np.abs(totals) >= abs(threshold) + 1.0)
    far |= (totals * threshold <= 0) & (np.abs(totals) >= max(1.0, abs(threshold)))
    np.testing.assert_allclose(decisions[far], totals[far], rtol=0, atol=1e-12)
    log_odds = weights.slope * totals + weights.bias
    np.testing.assert_allclose(weights.log_odds(decisions), log_odds, rtol=1e-12, atol=1e-6)


def test_moving_the_threshold_does_not_change_the_highest_decisions():
    sides = _sides(shift=(2.0,))
    weights = weigh_experts(sides, "gmean", np.ones(1))
    totals = weights.scores(sides.positive)
    top = totals >= 2.0
    assert top.sum() > 10
    moved = [replace(weights, threshold=threshold).decisions(totals[top]) for threshold in (-0.8, 0.1, 0.9)]
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-12)
    np.testing.assert_allclose(moved[0], moved[2], rtol=1e-12)


def test_calibrated_log_odds_of_few_positives_are_bounded_and_keep_their_order():
    rng = np.random.default_rng(0)
    negative = rng.normal(size=(1000, 1))
    negative[:3] = 30.0  # with negatives above all positives, the slope above the middle is 0
    highest = []
    for n_positive in (3, 1000):
        positive = 10.0 + rng.normal(size=(n_positive, 1))
        weights = weigh_experts(TwoSides(positive, negative, 0.003), "gmean", np.ones(1))
        scores = weights.scores(np.linspace(-5.0, 40.0, 50)[:, None])
        assert (np.diff(scores) > 0.0).all()
        highest.append(scores[-1])
    assert highest[0] < 1.0 + np.log(4.0) + 3.0 < highest[1]


def test_ranks_of_remembered_rows_equal_those_of_one_transformation():
    rng = np.random.default_rng(0)
    config = next(config for config in EXPERTS if config.name == "neighbors")
    expert, rows = config.make(config), RowBuffer.empty(3)
    for step in range(40):
        rows = rows.append(_block(rng, 17, first=17 * step))
        if step in {0, 20}:  # another transformation, after which no earlier rank is valid
            views = Views(RankView.fit(rows.block.X))
        n = 17 * (step + 1)
        stream = Stream(rows, 0, n, views, CostBudget("auto", 2))
        if step == 30:
            rows = rows.without(np.arange(n - 60, n - 50))
            stream = Stream(rows, 0, n, views, CostBudget("auto", 2))
        expert.update(stream)
        rule = expert.make_rule(stream)
        expected = TransformedRows(rows.at(expert.held).X, views).ranks
        np.testing.assert_array_equal(rule.vectors, expected)


@pytest.mark.parametrize("n_neighbors", [1, 5])
def test_nearest_neighbors_vote_with_their_similarity(n_neighbors):
    rng = np.random.default_rng(0)
    vectors, places = np.round(rng.normal(size=(90, 3)), 1), rng.integers(0, 3, 90)
    X = rng.normal(size=(70, 3))
    similarity = np.exp(-np.abs(X[:, None] - vectors).sum(axis=2) / 3.0)
    for n_classes in (2, 3):
        classes = places % n_classes
        votes = np.full((70, n_classes), 0.5 / n_classes)
        for row, nearest in enumerate(np.argsort(-similarity, axis=1)[:, :n_neighbors]):
            np.add.at(votes[row], classes[nearest], similarity[row, nearest])
        expected = np.log(votes)
        expected = expected[:, 1:] - expected[:, :1] if n_classes == 2 else expected
        rule = NearestNeighborRule(list(range(n_classes)), vectors, classes, n_neighbors)
        np.testing.assert_allclose(rule._rank_scores(X), expected, rtol=1e-12)


def test_last_of_equally_near_rows_votes():
    vectors = np.zeros((7, 2))
    rule = NearestNeighborRule([0, 1], vectors, np.array([0, 0, 1, 1, 1, 1, 1]), n_neighbors=5)
    np.testing.assert_allclose(rule._rank_scores(np.zeros((1, 2))), [[np.log(5.25 / 0.25)]])


@pytest.mark.parametrize("first", [0, 1])
def test_native_scores_equal_those_of_the_rules_for_either_order_of_class_codes(first):
    rng = np.random.default_rng(0)
    y = (rng.random(1200) < 0.3).astype(int)
    y[0] = first  # the first label gets the code 0
    X = rng.normal(size=(1200, 4)) + y[:, None]
    model = StreamClassifier().partial_fit(X[:1], y[:1]).partial_fit(X[1:], y[1:])
    snapshot, rows = model._ensemble.snapshot, X[:50]
    assert snapshot.classes == [first, 1 - first]
    scores, transformed = snapshot.raw_scores(rows), TransformedRows(rows, snapshot.views)
    for number, rule in enumerate(snapshot.rules):
        if rule is not None:
            expected = align(rule.scores(transformed), rule.classes, snapshot.classes)
            np.testing.assert_allclose(scores[:, number], expected, rtol=1e-9, atol=1e-9)
