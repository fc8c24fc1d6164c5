"""
Exact forgetting of a column
============================

A column is positive in early rows, with some large values, and 0 afterwards. After the early rows are
forgotten the column is constant, and its coefficient must be 0. Floating-point sums keep a rounding
error; integer sums do not.
"""

# %%
# Floating-point and integer statistics
# -------------------------------------
# A window of 500 rows slides over 1,500. ``FloatSums`` adds and subtracts the products of rows in double
# precision; everything else is the same.

import matplotlib.pyplot as plt
import numpy as np

from steelyard import ProximalSVC

rng = np.random.default_rng(29)
n_rows, window, chunk = 1500, 500, 50
X = rng.normal(size=(n_rows, 2))
X[:, 1] = 0.0
X[:400, 1] = rng.lognormal(8.0, 2.5, size=400)
y = (X[:, 0] > 0).astype(int)


class FloatSums:
    """Sums of products of rows in doubles, and the plane of two classes, standardized and balanced."""

    def __init__(self, width):
        self.sums = np.zeros((2, width + 1, width + 1))

    def add(self, rows, labels, sign):
        E = np.column_stack([rows, -np.ones(len(rows))])
        for label in (0, 1):
            mine = E[labels == label]
            self.sums[label] += sign * (mine.T @ mine)

    def coefficient(self, column):
        total = self.sums.sum(axis=0)
        n = total[-1, -1]
        mean = -total[-1, :-1] / n
        variance = np.diagonal(total)[:-1] / n - mean**2
        scale = np.where(variance > 0.0, np.sqrt(np.abs(variance)), 1.0)
        share = self.sums[1][-1, -1] / n
        matrix = share * total + (1.0 - 2.0 * share) * self.sums[1]
        T = np.eye(len(matrix))
        T[:-1, :-1], T[-1, :-1] = np.diag(1.0 / scale), mean / scale
        right = T.T @ (self.sums[1][:, -1] - share * total[:, -1]) * -1.0
        return (T @ np.linalg.solve(T.T @ matrix @ T + np.eye(len(matrix)), right))[column]


floats, model = FloatSums(2), ProximalSVC().fit(X[:window], y[:window])
floats.add(X[:window], y[:window], 1)
ends, by_floats, by_integers = [], [], []
for end in range(window, n_rows, chunk):
    new, old = slice(end, end + chunk), slice(end - window, end - window + chunk)
    floats.add(X[new], y[new], 1)
    floats.add(X[old], y[old], -1)
    model.update(add=(X[new], y[new]), forget=(X[old], y[old]))
    ends.append(end + chunk)
    by_floats.append(abs(floats.coefficient(1)))
    by_integers.append(abs(model.coef_[0, 1]))

# %%
# The coefficient of the column
# -----------------------------
# At the vertical line the last row with a positive value has left the window. A fresh fit gives exactly 0,
# and so do integer sums.

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
floor = 1e-12
axes.semilogy(ends, np.maximum(by_floats, floor), color="#cc6677", label="sums of doubles")
exact = "integer sums (0 is drawn at the bottom)"
axes.semilogy(ends, np.maximum(by_integers, floor), color="#4477aa", label=exact)
axes.axvline(window + 400, color="#888888", linewidth=0.8)
axes.set(xlabel="rows seen", ylabel="|coefficient of the column|")
axes.legend(loc="center right")
plt.show()

print("doubles:", by_floats[-1], " whole numbers:", by_integers[-1])
