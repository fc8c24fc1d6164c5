"""Reference implementations of the algorithms of steelyard.online, without caches.

Kernel learners take the kernel matrix of a stream and refer to samples by their row number in the stream.
"""

from __future__ import annotations

import math

import numpy as np


def squared_distances(X):
    return sum((column[:, None] - column[None, :]) ** 2 for column in X.T)


def products(X):
    return sum(column[:, None] * column[None, :] for column in X.T)


def rbf(X, gamma):
    return np.exp(-gamma * squared_distances(X))


def polynomial(X, degree, gamma=1.0, coef0=0.0):
    return (gamma * products(X) + coef0) ** degree


def uniform(seed, t, series=0):
    """Return the random number of step t in [0, 1): the finalizer of SplitMix64, applied twice."""
    word, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & word
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & word
        return x ^ (x >> 31)

    return (mix((mix((seed + golden * (t + 1)) & word) + golden * (series + 1)) & word) >> 11) * 2.0**-53


class Koil:
    """KOIL with two buffers of pairs [sample, weight]. Every score is computed from scratch."""

    def __init__(
        self,
        K,
        *,
        C,
        budget,
        n_neighbors,
        eta,
        loss="hinge",
        policy="fifo++",
        decay=True,
        seed=0,
        rate_decay=0.0,
        nearest_first=False,
        store_all=False,
    ):
        self.K, self.C, self.k, self.first_eta, self.rate_decay = K, C, n_neighbors, eta, rate_decay
        self.loss, self.policy, self.decay, self.seed = loss, policy, decay, seed
        pair = budget if isinstance(budget, tuple) else (budget, budget)
        self.budget = dict(zip((+1, -1), pair, strict=True))  # n_positive, n_negative
        if policy == "unbounded":
            self.budget = {+1: math.inf, -1: math.inf}
        self.buffers = {+1: [], -1: []}
        self.oldest = {+1: 0, -1: 0}
        self.seen = {+1: 0, -1: 0}
        self.last_loss = 0.0
        self.nearest_first, self.store_all = nearest_first, store_all

    def weights(self):
        weights = np.zeros(len(self.K))
        for buffer in self.buffers.values():
            for sample, weight in buffer:
                weights[sample] += weight
        return weights

    def f(self, samples):
        entries = [entry for buffer in self.buffers.values() for entry in buffer]
        kept = np.array([sample for sample, _ in entries], dtype=int)
        return self.K[np.ix_(samples, kept)] @ np.array([weight for _, weight in entries])

    def learn(self, t, y):
        self.seen[y] += 1
        self.eta = self.first_eta / (self.seen[+1] + self.seen[-1]) ** self.rate_decay
        own, opposite = self.buffers[y], self.buffers[-y]
        others = np.array([sample for sample, _ in opposite], dtype=int)
        losses = 1 - y * (self.f([t])[0] - self.f(others))
        nearest = np.argsort(-self.K[t, others], kind="stable")
        if self.nearest_first:  # equation (3.9) of the thesis
            violators = [i for i in nearest[: self.k] if losses[i] > 0]
        else:  # algorithm 2 of the thesis
            violators = [i for i in nearest if losses[i] > 0][: self.k]
        if self.decay:
            for entry in own + opposite:
                entry[1] *= 1 - self.eta
        weight = 0.0
        for i in violators:
            step = self.eta * self.C * y * (2 * losses[i] if self.loss == "smooth" else 1)
            opposite[i][1] -= step
            weight += step
        acted_on = losses[violators]
        self.last_loss = self.C * float(np.sum(acted_on**2 if self.loss == "smooth" else acted_on))
        if not violators and (not opposite or not own) and not self.store_all:
            weight = self.eta * self.C * y
        if weight or self.store_all:  # algorithm 3 as published stores samples of weight 0
            self.put(own, t, y, weight)

    def put(self, own, t, y, weight):
        if len(own) < self.budget[y]:
            own.append([t, weight])
            return
        if self.policy.startswith("fifo"):
            position = self.oldest[y]
            self.oldest[y] = (position + 1) % self.budget[y]
        else:
            position = int(uniform(self.seed, t) * self.seen[y])
        removed = [t, weight]
        if position < self.budget[y]:
            removed, own[position] = own[position], removed
        if self.policy.endswith("++"):
            stored = [sample for sample, _ in own]
            own[int(np.argmax(self.K[removed[0], stored]))][1] += removed[1]


class MultiKernelKoil:
    """KOIL with multiple kernels: one learner per kernel, by default without decay."""

    def __init__(self, matrices, *, seed, decay=False, weight_rate=None, **parameters):
        self.learners = [Koil(K, decay=decay, seed=seed, **parameters) for K in matrices]
        self.weights = np.ones(len(matrices))
        self.seed = seed
        # The loss of a learner includes the factor C, so the rate is divided by C.
        self.rate = parameters["eta"] if weight_rate is None else weight_rate / parameters["C"]

    def learn(self, t, y):
        probabilities = self.weights / self.weights.max()
        for l, learner in enumerate(self.learners):
            if uniform(self.seed, t, 1 + l) < probabilities[l]:
                learner.learn(t, y)
                self.weights[l] *= math.exp(-self.rate * learner.last_loss)

    def F(self, samples, combine):
        q = self.weights / self.weights.sum()
        scores = np.array([learner.f(samples) for learner in self.learners])
        return q @ (np.sign(scores) if combine == "sign" else scores)


def norma(K, y, *, eta, regularization, nu, memory=None):
    """Return the weights of all samples, the bias and the margin."""
    a, b, rho = np.zeros(len(y)), 0.0, 0.0
    for t in range(len(y)):
        error = y[t] * (K[t] @ a + b) <= rho
        a *= 1 - eta * regularization
        if error:
            a[t] = eta * y[t]
            b += eta * y[t]
        rho += eta * (nu - error)
        if memory is not None:
            a[: max(0, t + 1 - memory)] = 0.0
    return a, b, rho


def random_budget_perceptron(K, y, *, budget, seed):
    """Return the weights. The last support vector of the list moves to the position of a removed vector."""
    kept = []
    for t in range(len(y)):
        if y[t] * sum(y[i] * K[t, i] for i in kept) > 0:
            continue
        if len(kept) >= budget:
            removed = int(uniform(seed, t) * len(kept))
            kept[removed] = kept[-1]
            kept.pop()
        kept.append(t)
    weights = np.zeros(len(y))
    weights[kept] = y[kept]
    return weights


def forgetron(K, y, *, budget):
    """Return the weights. The shrinking factor is found by bisection from its definition."""
    a, kept, Q, mistakes = np.zeros(len(y)), [], 0.0, 0
    for t in range(len(y)):
        if y[t] * (K[t] @ a) > 0:
            continue
        mistakes += 1
        a[t] = y[t]
        kept.append(t)
        if len(kept) <= budget:
            continue
        oldest = kept.pop(0)
        sigma, mu = abs(a[oldest]), y[oldest] * (K[oldest] @ a)

        def psi(phi, sigma=sigma, mu=mu):
            return (sigma * phi) ** 2 + 2 * sigma * phi - 2 * (sigma * phi) * (mu * phi)

        low, high = 0.0, 1.0
        if Q + psi(1.0) <= 15 / 32 * mistakes:
            low = 1.0
        else:
            for _ in range(200):
                middle = (low + high) / 2
                low, high = (middle, high) if Q + psi(middle) <= 15 / 32 * mistakes else (low, middle)
        Q += psi(low)
        a *= low
        a[oldest] = 0.0
    return a


def projectron(K, y, *, threshold, margin=False):
    """Return the weights. Every projection solves a linear system."""
    a, kept = np.zeros(len(y)), []
    for t in range(len(y)):
        achieved = y[t] * (K[t] @ a)
        if achieved >= 1 or (achieved > 0 and not margin):
            continue
        weights = np.linalg.solve(K[np.ix_(kept, kept)], K[kept, t]) if kept else np.zeros(0)
        length = float(weights @ K[kept, t])
        delta = math.sqrt(max(0.0, K[t, t] - length))
        if achieved > 0:
            loss = 1 - achieved
            if loss > delta / threshold:
                a[kept] += y[t] * min(loss / length, 2 * (loss - delta / threshold) / length, 1) * weights
        elif kept and delta <= threshold:
            a[kept] += y[t] * weights
        else:
            a[t] = y[t]
            kept.append(t)
    return a


def perceptron(X, y):
    w, b = np.zeros(X.shape[1]), 0.0
    for x, sign in zip(X, y, strict=True):
        if sign * (w @ x + b) <= 0:
            w, b = w + sign * x, b + sign
    return w, b


def oam(X, y, *, C, budget, seed):
    w, buffers, seen = np.zeros(X.shape[1]), {1: [], -1: []}, {1: 0, -1: 0}
    for t, (x, sign) in enumerate(zip(X, y, strict=True)):
        seen[sign] += 1
        own = buffers[sign]
        position = len(own) if len(own) < budget else int(uniform(seed, t) * seen[sign])
        if position < budget:
            own[position : position + 1] = [x]
        bound = C * max(1.0, seen[-sign] / budget)
        for z in buffers[-sign]:
            loss = 1 - sign * (w @ (x - z))
            squared = float((x - z) @ (x - z))
            if loss > 0 and squared > 0:
                w = w + sign * min(bound, loss / squared) * (x - z)
    return w


def opauc(X, y, *, eta, regularization):
    """Return the weights. Mean and covariance of the other class are computed from all its rows so far."""
    w = np.zeros(X.shape[1])
    for t, (x, sign) in enumerate(zip(X, y, strict=True)):
        other = X[:t][y[:t] == -sign]
        if not len(other):
            continue
        c, S = other.mean(axis=0), np.cov(other.T, bias=True).reshape(len(x), len(x))
        w = w - eta * (regularization * w - sign * (x - c) + (x - c) * ((x - c) @ w) + S @ w)
    return w


def arow(X, y, *, regularization):
    """Return weights and intercept. The intercept is the weight of a column of ones."""
    X = np.column_stack([X, np.ones(len(X))])
    w, variances = np.zeros(X.shape[1]), np.ones(X.shape[1])
    for t, (x, sign) in enumerate(zip(X, y, strict=True)):
        loss = 1.0 - sign * (w @ x)
        if loss > 0:
            share = (y[: t + 1] == sign).mean()
            beta = 1.0 / (variances @ x**2 + 2.0 * regularization * share)
            w = w + sign * loss * beta * variances * x
            variances = variances - beta * (variances * x) ** 2
    return w[:-1], w[-1]
