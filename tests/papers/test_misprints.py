"""Misprints in the papers: the published formula fails, and the corrected formula holds.

Numbers in parentheses are equations of the paper.
"""

from __future__ import annotations

import numpy as np
import pytest

from papers.dcil.multiple import MultipleStep
from papers.koil.published import PAPER_OTHERS, PAPER_WINS, PAPER_WINS_MANY
from steelyard import KOIL, AlignedSVC, ProximalSVC
from steelyard.kernels import Kernel
from steelyard.metrics import g_mean_score


@pytest.fixture
def rows(rng):
    y = rng.random(2000) < 0.03
    return rng.normal(size=(2000, 4)) + 1.5 * y[:, None], y


def plane(E_positive, E_negative, weights, C=1.0):
    """Return the plane of (21), where rows are [x, -1]."""
    positive, negative = weights
    matrix = np.eye(E_positive.shape[1]) / C
    matrix += positive * E_positive.T @ E_positive + negative * E_negative.T @ E_negative
    return np.linalg.solve(matrix, positive * E_positive.sum(axis=0) - negative * E_negative.sum(axis=0))


def expanded(X):
    return np.column_stack([X, -np.ones(len(X))])


def test_weights_of_equation_29_miss_rare_class_and_learner_uses_equation_17(rows):
    X, y = rows
    share = y.mean()
    planes = {
        "(29)": plane(expanded(X[y]), expanded(X[~y]), (share, 1.0 - share)),
        "(17)": plane(expanded(X[y]), expanded(X[~y]), (1.0 - share, share)),
    }
    g_means = {name: g_mean_score(y, expanded(X) @ w > 0) for name, w in planes.items()}
    assert g_means["(29)"] < 0.1
    assert g_means["(17)"] > 0.8
    model = ProximalSVC(standardize=False).fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_[0], -model.intercept_), planes["(17)"], rtol=1e-8)


def test_plane_of_new_class_uses_updated_row_count(rng):
    """Check (4.26), which mixes the row counts l before and l' after the new class.

    With l' everywhere, (4.26) equals (4.23) on all rows.
    """
    X, labels = rng.normal(size=(300, 3)), np.repeat([0, 1, 2], [200, 60, 40])
    X += labels[:, None]
    E, new = expanded(X), labels == 2
    l_before, l_now, l_class = 260, 300, 40
    M, M_class, v, v_class = E.T @ E, E[new].T @ E[new], E.sum(axis=0), E[new].sum(axis=0)

    def solved(share_of_all, share_in_v):
        matrix = np.eye(4) + share_of_all * M + (l_now - 2 * l_class) / l_now * M_class
        return np.linalg.solve(matrix, v_class - share_in_v * v)

    model = ProximalSVC(standardize=False).fit(X, labels)
    own = np.append(model.coef_[2], -model.intercept_[2])
    np.testing.assert_allclose(solved(l_class / l_now, l_class / l_now), own, rtol=1e-8)
    assert np.abs(solved(l_class / l_before, l_class / l_now) - own).max() > 1e-3


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_f_measure_formula_of_the_paper_exceeds_one_for_perfect_prediction(beta):
    recall = precision = 1.0
    printed = (1 + beta) ** 2 * recall * precision / (beta**2 * recall + precision)
    usual = (1 + beta**2) * recall * precision / (beta**2 * precision + recall)
    assert printed > 1.0
    assert usual == 1.0


@pytest.mark.parametrize("together", [True, False])
def test_multiple_step_update_solves_equation_3_18_and_reaches_optimum(rng, together):
    y = np.where(rng.random(90) < 0.4, 1.0, -1.0)
    X = rng.normal(size=(90, 3)) + 0.8 * (y == 1)[:, None]
    path = MultipleStep(Kernel("rbf", gamma=0.3).block(X), y, 1.0)
    path.add(list(range(60)))
    new = list(range(60, 90))
    for part in [new] if together else [[i] for i in new]:
        path.add(part)
    g, alpha = path.g(), path.alpha
    inside = (alpha > 1e-6) & (alpha < 1 - 1e-6)
    assert np.abs(g[inside]).max() < 1e-5  # margin vectors
    assert g[alpha <= 1e-6].min() > -1e-5  # reserve vectors
    assert g[alpha >= 1 - 1e-6].max(initial=-1.0) < 1e-5  # error vectors
    assert abs(y @ alpha) < 1e-6


def test_sensitivities_solve_equation_3_18_with_inverse_instead_of_transpose(rng):
    y = np.where(rng.random(12) < 0.5, 1.0, -1.0)
    Q = np.outer(y, y) * Kernel("rbf", gamma=0.5).block(rng.normal(size=(12, 2)))
    margin, moving = slice(0, 8), slice(8, 12)
    M = np.block([[np.zeros((1, 1)), y[None, margin]], [y[margin, None], Q[margin, margin]]])
    pull = np.vstack([y[None, moving], Q[margin, moving]]) @ rng.random(4)
    assert np.abs(M @ -np.linalg.solve(M, pull) + pull).max() < 1e-9
    assert np.abs(M @ -(M.T @ pull) + pull).max() > 0.1


def test_gradient_step_needs_minus_sign_in_equations_3_12_and_3_19(rng):
    """Check a gradient step on |f|^2 / 2 + C times the hinge losses, with a linear kernel."""
    X, C, eta = rng.normal(size=(6, 2)), 1.0, 0.01
    y = np.array([1, 0, 1, 0, 0, 1])
    learner = KOIL(C, kernel="linear", budget=50, n_neighbors=50, learning_rate=eta, threshold="zero")
    learner.partial_fit(X[:5], y[:5], classes=[0, 1])
    opposite = X[:5][y[:5] == 0]

    def weights():
        return learner.decision_function(np.eye(2)) - learner.decision_function(np.zeros((1, 2)))

    def losses(f):
        return 1.0 - (X[5] - opposite) @ f

    def risk(f):
        return f @ f / 2 + C * np.maximum(losses(f), 0.0).sum()

    before = weights()
    assert (losses(before) > 0).all(), "every pair has a positive loss"
    slope = before - C * (X[5] - opposite).sum(axis=0)
    assert risk(before - eta * slope) < risk(before) < risk(before + eta * slope)
    learner.partial_fit(X[5:], y[5:])
    np.testing.assert_allclose(weights(), before - eta * slope, rtol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_kba_round_of_the_paper_increases_no_similarity_and_preserves_angles(rows, kernel):
    """Check that (5) is at most 1, so that (8) decreases positive similarities and preserves cosines."""
    X, y = rows[0][:300], rows[1][:300]
    forced = {"variant": "printed", "early_stopping": False, "max_iter": 1, "shift": False}
    D = AlignedSVC(10.0, kernel=kernel, gamma=0.5, **forced).fit(X, y).alignment_factor(X)
    assert 0.0 < D.min() <= D.max() <= 1.0
    before = Kernel(kernel, gamma=0.5).block(X)
    after = D[:, None] * D * before
    assert (after <= before).all()
    lengths = np.sqrt(np.diag(after))
    np.testing.assert_allclose(after / np.outer(lengths, lengths), before, rtol=1e-9)  # k(x, x) is 1


def test_balanced_class_weights_of_one_half_halve_C(rng):
    """Check that the weights 1/2 of (4.7), instead of the weights 1 of section 5.4, halve C."""
    y = np.arange(200) % 2 == 1
    X = rng.normal(size=(200, 3)) + 0.5 * y[:, None]
    model = ProximalSVC(1.0, standardize=False).fit(X, y)
    own = np.append(model.coef_[0], -model.intercept_)
    sides = expanded(X[y]), expanded(X[~y])
    np.testing.assert_allclose(own, plane(*sides, (0.5, 0.5)), rtol=1e-8)
    np.testing.assert_allclose(own, plane(*sides, (1.0, 1.0), C=0.5), rtol=1e-8)
    assert np.abs(own - plane(*sides, (1.0, 1.0))).max() > 1e-4


def test_koil_thesis_text_contradicts_its_tables():
    assert all(PAPER_WINS["3.3"][f"KOIL2 {policy}"][0] != 5 for policy in ("RS++", "FIFO++"))
    assert all(PAPER_WINS_MANY[f"MKL2 {policy}"][0] < 7 for policy in ("RS++", "FIFO++"))
    assert PAPER_OTHERS["s4"]["OAM"][0] > 0.5  # "even poorer than random guesses"


def test_win_counts_in_one_row_of_table_4_1_sum_to_12_instead_of_14():
    assert {sum(counts) for counts in PAPER_WINS["3.3"].values()} == {14}
    sums = {name: sum(counts) for name, counts in PAPER_WINS_MANY.items()}
    assert sums.pop("MKL FIFO++") == 12
    assert set(sums.values()) == {14}


def test_theorem_3_fails_for_one_useful_and_fifteen_constant_kernels():
    """Check that (4.4) does not hold: its proof (A.21) bounds a mean over the kernels by their minimum.

    Every sample has the pairwise hinge loss max(0, 1 - f(x) + f(z)). A constant kernel has f(x) = f(z), so
    its loss is 1 and its gradient 0. For the useful kernel phi(x) - phi(z) is one unit vector v, and f = c v.
    """
    rng = np.random.default_rng(0)
    n_kernels, T, eta, rate, L, G = 16, 600, 0.01, 0.01, 1.0, 1.0
    left = []
    for _ in range(20):
        log_w, c, total = np.zeros(n_kernels), 0.0, 0.0
        for _ in range(T):
            losses = np.ones(n_kernels)
            losses[0] = max(0.0, 1.0 - c)
            w = np.exp(log_w - log_w.max())
            learns = rng.random(n_kernels) < w  # line 6 of algorithm 4
            total += float((w / w.sum() * learns * losses).sum())
            c += rate * bool(learns[0] and losses[0] > 0)
            log_w -= eta * learns * losses
        left.append(total)
    # f = v has loss 0 with the useful kernel, so the minimum is at most |v|^2 / (2 rate).
    right = 1.0 / (2.0 * rate) + T / 2.0 * (eta * L**2 + rate * G**2)
    assert np.mean(left) > 2.0 * right
    assert right == pytest.approx(56.0)
    assert np.mean(left) == pytest.approx(208.0, rel=0.05)
    assert np.mean(left) < right + np.log(n_kernels) / eta == pytest.approx(333.0, abs=1.0)
