"""
What class weights do to the boundary
=====================================

Each proximal plane is fitted to the rows of one class by least squares. If one class has many more rows,
its loss dominates and the boundary moves into the rare class. Balanced weights give both classes the same
total weight, always for the current counts.
"""

# %%
# Data
# ----
# The rare class is on the right, between 0.1 and 1.1; the frequent one is on the left.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from steelyard import ProximalSVC

COMMON, RARE, TRUTH = "#4477aa", "#cc6677", "#228833"


def make_rows(n_common, n_rare, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], [n_common, n_rare])
    X = np.column_stack([rng.uniform(0.1, 1.1, len(y)), rng.uniform(-1, 1, len(y))])
    X[y == 0, 0] *= -1
    return X, y


def draw(ax, model, X, y, title):
    """Rows, the right boundary in green, the learned one in black, the planes of both classes dashed."""
    size = 14 if len(y) < 200 else 5
    ax.scatter(*X[y == 0].T, s=size, marker="x", color=COMMON, linewidths=0.8, alpha=0.7)
    ax.scatter(*X[y == 1].T, s=18, color=RARE, alpha=0.9, edgecolors="white", linewidths=0.4)
    ax.axvline(0.0, color=TRUTH, linewidth=2)
    x1, x2 = np.meshgrid(np.linspace(-1.6, 1.6, 200), np.linspace(-1.1, 1.1, 100))
    scores = model.decision_function(np.column_stack([x1.ravel(), x2.ravel()])).reshape(x1.shape)
    ax.contour(x1, x2, scores, levels=[0.0], colors="black", linewidths=2)
    ax.contour(x1, x2, scores, levels=[-1.0, 1.0], colors=[COMMON, RARE], linestyles="dashed")
    ax.set(xlim=(-1.6, 1.6), ylim=(-1.1, 1.1), title=title, xlabel="$x_1$")
    ax.set_yticks([-1, 0, 1])


# %%
# Without weights
# ---------------
# With 30 rows per class both models find the boundary. With 30 against 900 both boundaries move towards the
# rare class, and that of the proximal SVM much farther: all rows of the frequent class contribute to its
# loss, but only rows near the margin to that of the SVM.

fig, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for row, n_common in zip(axes, (30, 900), strict=True):
    X, y = make_rows(n_common, 30)
    draw(row[0], SVC(kernel="linear").fit(X, y), X, y, f"SVC, {n_common} : 30")
    plain = ProximalSVC(class_weight=None, standardize=False).fit(X, y)
    draw(row[1], plain, X, y, f"ProximalSVC(class_weight=None), {n_common} : 30")
for ax in axes[:, 0]:
    ax.set_ylabel("$x_2$")
for ax in axes[0]:
    ax.set_xlabel("")

# %%
# Balanced weights
# ----------------
# The same 900 and 30 rows. Without weights, the plane of the rare class (dashed, red) is outside the plot.
# With balanced weights it passes through its rows, and the boundary is in the gap.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
balanced = ProximalSVC(standardize=False).fit(X, y)
draw(axes[0], plain, X, y, "class_weight=None, 900 : 30")
draw(axes[1], balanced, X, y, 'class_weight="balanced", 900 : 30')
axes[0].set_ylabel("$x_2$")

# %%
# Increasing imbalance
# --------------------
# Position of the boundary at :math:`x_2 = 0` over twenty draws per ratio; the bands contain 80 percent of
# them. The rare class is between 0.1 and 1.1. Without weights the model starts to miss rare rows at four to
# one and misses almost all at thirty to one.

ratios = np.array([1, 2, 4, 8, 16, 32, 100, 300, 1000])
settings = {"class_weight=None": None, 'class_weight="balanced"': "balanced"}


def crossing(class_weight, ratio, seed):
    model = ProximalSVC(class_weight=class_weight, standardize=False)
    model.fit(*make_rows(30 * ratio, 30, seed))
    return -model.intercept_[0] / model.coef_[0, 0]


fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for (label, class_weight), color in zip(settings.items(), ("black", "#ee7733"), strict=True):
    places = np.array([[crossing(class_weight, r, seed) for seed in range(20)] for r in ratios])
    low, middle, high = np.quantile(places, [0.1, 0.5, 0.9], axis=1)
    ax.fill_between(ratios, low, high, color=color, alpha=0.15, linewidth=0)
    ax.plot(ratios, middle, "o-", color=color, label=label)
    print(f"{label:<24}", *(f"{position:7.2f}" for position in middle))
ax.axhspan(0.1, 1.1, color=RARE, alpha=0.12, linewidth=0)
ax.text(1.0, 1.05, "rows of the rare class", color=RARE, va="top")
ax.axhline(0.0, color=TRUTH, linewidth=2, label="true boundary")
ax.set(xscale="log", xlabel="frequent rows per rare row", ylabel="boundary at $x_1$ =")
ax.set_ylim(-0.15, 1.2)
ax.legend(loc="center right", frameon=False)
plt.show()
