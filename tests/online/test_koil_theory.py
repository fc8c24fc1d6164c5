"""Check the lemmas and theorems of the KOIL thesis on random streams, by simple code for its equations.

Numbers in parentheses are equations of the thesis. A function ``f = sum_i a_i k(x_i, .)`` is an array of
weights of all samples of a stream. No sample is removed, as for f_t in (3.5) and (3.15): the support vectors
of a class are all its samples so far.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from steelyard import KOIL
from tests.online.reference import rbf


@pytest.fixture(params=range(6))
def stream(request):
    rng = np.random.default_rng(request.param)
    n, share = 120, (0.5, 0.3, 0.1)[request.param % 3]
    y = np.where(rng.random(n) < share, 1, -1)
    X = rng.normal(size=(n, 2)) + 0.7 * (y == 1)[:, None]
    return rbf(X, (0.2, 1.0, 3.0)[request.param % 3]), y


class SimpleKoil:
    """KOIL with unlimited buffers: (3.4) to (3.7) for the hinge loss, (3.14) to (3.16) for its square."""

    def __init__(self, K, y, *, C, k, eta, smooth=False):
        self.K, self.y, self.C, self.k, self.eta, self.smooth = K, y, C, k, eta, smooth

    def neighbours(self, t):
        """Return N_t, the k nearest opposite samples before t."""
        opposite = [i for i in range(t) if self.y[i] != self.y[t]]
        return sorted(opposite, key=lambda i: -self.K[t, i])[: self.k]

    def loss(self, a, t, i):
        """Return the pairwise hinge loss (3.2) of samples t and i."""
        f = self.K @ a
        return max(0.0, 1.0 - self.y[t] * (f[t] - f[i]))

    def risk(self, a, t):
        """Return the risk (3.4) or (3.14)."""
        losses = [self.loss(a, t, i) for i in self.neighbours(t)]
        total = sum(loss**2 if self.smooth else loss for loss in losses)
        return 0.5 * a @ self.K @ a + self.C * total

    def gradient(self, a, t):
        """Return the gradient (3.7) or (3.16) as weights."""
        result = a.copy()
        for i in self.neighbours(t):
            loss = self.loss(a, t, i)
            if loss > 0:
                step = self.C * self.y[t] * (2.0 * loss if self.smooth else 1.0)
                result[t] -= step
                result[i] += step
        return result

    def run(self):
        """Return f_1, ..., f_{T+1}."""
        functions = [np.zeros(len(self.y))]
        for t in range(len(self.y)):
            functions.append(functions[-1] - self.eta * self.gradient(functions[-1], t))
        return functions

    def c_p(self):
        """Return c_p of (3.21), the largest distance of a sample to a neighbour in feature space."""
        pairs = [(t, i) for t in range(len(self.y)) for i in self.neighbours(t)]
        return math.sqrt(max(2.0 - 2.0 * self.K[t, i] for t, i in pairs))

    def best(self, steps=400):
        """Return a function with a small total risk, by gradient descent on the sum of (3.4)."""
        a, T = np.zeros(len(self.y)), len(self.y)
        for step in range(1, steps + 1):
            total = sum(self.gradient(a, t) for t in range(T)) / T
            a = a - total / (1.0 + 0.2 * step)
        return a


class Compensated(SimpleKoil):
    """KOIL with bounded buffers and compensation, (3.12) and (3.19).

    Compensation adds the weight of a removed vector to the nearest vector of its class. Steps follow the
    negative gradient, as in (3.5) and (3.15). The thesis has the opposite signs in (3.12) and (3.19).
    """

    def __init__(self, K, y, *, budget, oldest_first, rng, **parameters):
        super().__init__(K, y, **parameters)
        self.budget, self.oldest_first, self.rng = budget, oldest_first, rng
        self.buffers = {1: [], -1: []}
        self.near = {}  # N_t of every step so far, from the buffers at that step
        self.removed = []  # weight of each removed vector, and its kernel value with the receiving vector
        self.largest = 0.0  # largest |weight| over all steps

    def neighbours(self, t):
        if t not in self.near:
            opposite = self.buffers[-self.y[t]]
            self.near[t] = sorted(opposite, key=lambda i: -self.K[t, i])[: self.k]
        return self.near[t]

    def run(self):
        """Return f_1^{++}, ..., f_{T+1}^{++}."""
        functions = [np.zeros(len(self.y))]
        for t in range(len(self.y)):
            a = functions[-1] - self.eta * self.gradient(functions[-1], t)
            self.largest = max(self.largest, np.abs(a).max())
            own = self.buffers[self.y[t]]
            own.append(t)  # algorithm 3, lines 3 and 4: every sample enters
            if len(own) > self.budget:
                r = own.pop(0 if self.oldest_first else int(self.rng.integers(len(own) - 1)))
                c = max(own, key=lambda i: self.K[r, i])
                self.removed.append((abs(a[r]), self.K[r, c]))
                a[c] += a[r]
                a[r] = 0.0
            self.largest = max(self.largest, np.abs(a).max())
            functions.append(a)
        return functions

    def extra(self, size):
        """Return the regret that one compensation may add: gamma c_d size + gamma^2 eta c_d^2 / 2.

        ``size`` bounds the sum of the norms of f_t and f*. As the theorems assume, gamma eta bounds all
        weights, and xi^2 (in c_d) bounds the kernel values of all compensations. Both bounds are computed
        from the run.
        """
        gamma, c_d = self.largest / self.eta, self.c_d()
        return gamma * c_d * size + 0.5 * gamma**2 * self.eta * c_d**2

    def c_d(self):
        """Return the largest feature-space distance of a removed vector to the vector that got its weight."""
        return math.sqrt(max(0.0, 2.0 - 2.0 * min(value for _, value in self.removed)))

    def jumps(self, functions):
        """Return the norm of the change by compensation in each step."""
        return [
            norm(self.K, after - (before - self.eta * self.gradient(before, t)))
            for t, (before, after) in enumerate(pairwise(functions))
        ]


def norm(K, a):
    return math.sqrt(max(0.0, a @ K @ a))


@pytest.mark.parametrize(("C", "k", "eta"), [(1.0, 1, 0.01), (0.3, 5, 0.1), (10.0, 3, 0.5)])
def test_norms_and_losses_satisfy_lemmas_1_and_2(stream, C, k, eta):
    K, y = stream
    path = SimpleKoil(K, y, C=C, k=k, eta=eta)
    functions, bound = path.run(), C * k * path.c_p()
    assert all(norm(K, a) <= bound + 1e-9 for a in functions)  # (3.22)
    U = 1.0 + C * k * path.c_p() ** 2  # (3.23)
    losses = [path.loss(a, t, i) for t, a in enumerate(functions[:-1]) for i in path.neighbours(t)]
    assert max(losses) <= U + 1e-9


@pytest.mark.parametrize(("C", "k", "eta"), [(1.0, 1, 0.05), (0.3, 5, 0.05)])
def test_hinge_regret_satisfies_theorem_1(stream, C, k, eta):
    K, y = stream
    path = SimpleKoil(K[:60, :60], y[:60], C=C, k=k, eta=eta)
    functions, T, c_p = path.run(), 60, path.c_p()
    U = 1.0 + C * k * c_p**2
    for best in (np.zeros(T), path.best(steps=60)):
        regret = sum(path.risk(functions[t], t) - path.risk(best, t) for t in range(T))
        printed = norm(path.K, best) ** 2 / (2 * eta) + eta * C * k * T * (
            (U - 1) + 0.5 * (k + 1) * C * c_p**2
        )
        assert regret <= printed  # (3.24)


@pytest.mark.parametrize(("C", "k"), [(1.0, 1), (0.2, 4)])
def test_smooth_regret_satisfies_theorem_2(stream, C, k):
    K, y = stream
    T = 60
    path = SimpleKoil(K[:T, :T], y[:T], C=C, k=k, eta=0.0, smooth=True)
    best = path.best(steps=60)
    mean_risk = sum(path.risk(best, t) for t in range(T)) / T
    r = 1.0 + 2.0 * C * k**2 * path.c_p() ** 2
    size = norm(path.K, best)
    path.eta = 1.0 / (r + math.sqrt(r**2 + 2.0 * r * T * mean_risk / size**2))  # (A.14)
    functions = path.run()
    regret = sum(path.risk(functions[t], t) - path.risk(best, t) for t in range(T))
    assert regret <= 2.0 * r * size**2 + size * math.sqrt(2.0 * r * T * mean_risk)  # (3.27)


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize(("C", "k", "eta"), [(1.0, 1, 0.05), (0.3, 5, 0.05)])
def test_compensated_hinge_regret_satisfies_theorem_1(stream, C, k, eta, oldest_first):
    K, y = stream
    T = 60
    options = {"budget": 6, "oldest_first": oldest_first, "rng": np.random.default_rng(0)}
    path = Compensated(K[:T, :T], y[:T], C=C, k=k, eta=eta, **options)
    functions, c_p = path.run(), path.c_p()
    jumps = path.jumps(functions)
    assert sum(jump > 1e-9 for jump in jumps) > 5
    assert max(jumps) <= max(weight for weight, _ in path.removed) * path.c_d() + 1e-9
    U = 1.0 + C * k * c_p**2
    for best in (np.zeros(T), path.best(steps=60)):
        regret = sum(path.risk(functions[t], t) - path.risk(best, t) for t in range(T))
        without = norm(path.K, best) ** 2 / (2 * eta) + eta * C * k * T * (
            (U - 1) + 0.5 * (k + 1) * C * c_p**2
        )
        assert regret <= without + T * path.extra(2.0 * C * k * c_p)  # (3.25)


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize(("C", "k"), [(1.0, 1), (0.2, 4)])
def test_compensated_smooth_regret_satisfies_theorem_2(stream, C, k, oldest_first):
    K, y = stream
    T = 60
    options = {"budget": 6, "oldest_first": oldest_first, "rng": np.random.default_rng(0)}
    path = Compensated(K[:T, :T], y[:T], C=C, k=k, eta=0.02, smooth=True, **options)
    functions = path.run()
    best = path.best(steps=60)
    total_risk = sum(path.risk(best, t) for t in range(T))
    r, size = 1.0 + 2.0 * C * k**2 * path.c_p() ** 2, norm(path.K, best)
    losses = [path.loss(a, t, i) for t, a in enumerate(functions[:-1]) for i in path.neighbours(t)]
    norms = size + 2.0 * max(losses) * C * k * path.c_p()
    assert max(norm(path.K, a) for a in functions) <= norms
    regret = sum(path.risk(functions[t], t) for t in range(T)) - total_risk
    without = size**2 / (2 * path.eta) + r * path.eta * total_risk
    # (3.28) in the form that (A.13) gives for any eta. (3.28) itself uses the eta of (A.14).
    assert regret <= (without + T * path.extra(norms)) / (1.0 - r * path.eta)


@pytest.mark.parametrize("C", [1.0, 0.3])
def test_compensation_by_an_equal_support_vector_does_not_change_scores(C):
    """Check the remark below (3.25): if a removed vector has a duplicate, the regret does not change."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3, 2))
    y = np.where(np.arange(60) % 4 == 0, 1, -1)
    place = (
        np.where(y == 1, np.cumsum(y == 1), np.cumsum(y == -1)) % 3
    )  # every buffer contains duplicates of all vectors
    X = points[place] + (y == 1)[:, None]
    K = rbf(X, 1.0)
    options = {"C": C, "k": 1, "eta": 0.1}
    path = Compensated(K, y, budget=12, oldest_first=True, rng=None, **options)
    functions, unlimited = path.run(), SimpleKoil(K, y, **options)
    assert path.removed
    assert min(value for _, value in path.removed) == pytest.approx(1.0)
    assert path.extra(2.0) == pytest.approx(0.0, abs=1e-6)
    assert max(path.jumps(functions)) < 1e-7
    np.testing.assert_allclose(K @ functions[-1], K @ unlimited.run()[-1], atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_weighted_kernel_losses_satisfy_mean_bound_of_theorem_3(seed):
    """Check the bound of (A.16) and (A.18) for random losses and random choices of the kernels that learn."""
    rng = np.random.default_rng(seed)
    T, m, eta = 200, 6, 0.05
    losses, w = rng.gamma(1.0, size=(T, m)) * rng.random(m), np.ones(m)
    weighted = plain = squares = 0.0
    for L in losses:
        chosen = rng.random(m) < w / w.max()
        q = w / w.sum()
        weighted += q @ (chosen * L)
        plain += np.mean(chosen * L)
        squares += q @ (chosen * L) ** 2
        w = w * np.exp(-eta * chosen * L)
    assert weighted <= plain + 0.5 * eta * squares


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_useful", [0, 1, 3])
def test_weighted_kernel_losses_satisfy_corrected_theorem_3(seed, n_useful):
    """Check the bound with (ln m) / eta for hinge losses of linear functions and gradient steps.

    The features of useless kernels are zero, so their loss is always 1. With such kernels the theorem in
    the thesis is false.
    """
    rng = np.random.default_rng(seed)
    T, m, d, eta, rate = 600, 16, 3, 0.01, 0.01
    truth = rng.normal(size=d)
    V = np.zeros((T, m, d))  # phi(x) - phi(z) of the pair of each step, times the label
    V[:, :n_useful] = rng.normal(size=(T, n_useful, d))
    V[:, :n_useful] *= np.sign(V[:, :n_useful] @ truth)[:, :, None]
    f, log_w, left, largest = np.zeros((m, d)), np.zeros(m), 0.0, 0.0
    learned = np.zeros((T, m), dtype=bool)
    for t in range(T):
        losses = np.maximum(0.0, 1.0 - (f * V[t]).sum(axis=1))
        largest = max(largest, losses.max())
        w = np.exp(log_w - log_w.max())
        learned[t] = rng.random(m) < w
        left += float((w / w.sum() * learned[t] * losses).sum())
        f += rate * (learned[t] & (losses > 0))[:, None] * V[t]
        log_w -= eta * learned[t] * losses
    G = np.sqrt(np.square(V).sum(axis=2).max())
    for i in range(m):
        for g in (np.zeros(d), f[i], truth / np.linalg.norm(truth), 3.0 * truth):
            rival = float((learned[:, i] * np.maximum(0.0, 1.0 - V[:, i] @ g)).sum())
            extra = np.log(m) / eta + T / 2.0 * (eta * largest**2 + rate * G**2)
            assert left <= rival + g @ g / (2.0 * rate) + extra


def test_learner_satisfies_lemma_1_up_to_first_samples():
    """Check lemma 1 for KOIL, whose first samples have weight eta C y, unlike in (3.5)."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.where(rng.random(200) < 0.3, 1, -1)
    for C, k in ((1.0, 1), (5.0, 10)):
        model = KOIL(C, n_neighbors=k, policy="unbounded", learning_rate=0.2).fit(X, y)
        weights = model.dual_coef_[0]
        size = norm(rbf(model.support_vectors_, 1.0), weights)
        assert size <= C * max(k * math.sqrt(2.0), 1.0)
