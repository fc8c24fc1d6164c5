"""
What forgetting does to the boundary
====================================

When class shares and positions change over time, old rows mislead the model. ``update(add=...,
forget=...)`` learns new rows and forgets old ones. The model equals a fresh fit on the remaining rows, at
a cost that does not depend on their number.
"""

# %%
# A drifting stream
# -----------------
# The rare class moves around the frequent one, a full circle in 120 chunks, and its share varies between 2
# and 20 percent. Both learners see the same 500 rows per step; one of them forgets rows after ten steps.

import matplotlib.pyplot as plt
import numpy as np

from steelyard import ProximalSVC
from steelyard.metrics import g_mean_score

COMMON, RARE, TRUTH = "#4477aa", "#cc6677", "#228833"
STEPS, WINDOW = 120, 10
rng = np.random.default_rng(3)


def center(step):
    angle = 2 * np.pi * step / STEPS
    return 2.5 * np.array([np.cos(angle), np.sin(angle)])


def make_chunk(step, n_rows=500):
    share = 0.02 + 0.18 * np.sin(np.pi * step / 40) ** 2
    y = (rng.random(n_rows) < share).astype(int)
    y[:2] = 0, 1
    return rng.normal(size=(n_rows, 2)) + np.outer(y, center(step)), y


stream = [make_chunk(step) for step in range(STEPS)]

# %%
# Each chunk is predicted before it is learned. The coefficients of both learners are stored for the plot.

keeping, forgetting = ProximalSVC(), ProximalSVC()
results = {"keeps every row": [], "forgets old rows": []}
planes = {}
for step, (X, y) in enumerate(stream):
    if step:
        results["keeps every row"].append(g_mean_score(y, keeping.predict(X)))
        results["forgets old rows"].append(g_mean_score(y, forgetting.predict(X)))
    keeping.partial_fit(X, y)
    forgetting.update(add=(X, y), forget=stream[step - WINDOW] if step >= WINDOW else None)
    planes[step] = [(m.coef_[0].copy(), m.intercept_[0]) for m in (keeping, forgetting)]

X_now, y_now = (np.concatenate(part) for part in zip(*stream[-WINDOW:], strict=True))
fresh = ProximalSVC().fit(X_now, y_now)
difference = np.abs(forgetting.coef_ - fresh.coef_).max() / np.abs(fresh.coef_).max()
print(f"after {STEPS} updates the planes differ from a fresh fit by {difference:.0e}")

# %%
# The boundary at three times
# ---------------------------
# Bright dots are rows in the window, pale dots are older. The green line is half-way between the two current
# centers.


def draw_line(ax, w, b, **style):
    """Draw the line ``w @ x + b = 0``."""
    foot, along = -b * w / (w @ w), np.array([-w[1], w[0]]) / np.linalg.norm(w)
    ax.plot(*np.transpose([foot - 20 * along, foot + 20 * along]), **style)


fig, axes = plt.subplots(1, 3, figsize=(11, 4.5), sharex=True, sharey=True, layout="constrained")
for ax, step in zip(axes, (15, 55, 95), strict=True):
    begin = max(0, step - WINDOW + 1)
    for first, last, alpha in ((0, begin, 0.06), (begin, step + 1, 0.5)):
        X, y = (np.concatenate(part) for part in zip(*stream[first:last:2], strict=True))
        for label, color in ((0, COMMON), (1, RARE)):
            ax.scatter(*X[y == label].T, s=5, color=color, alpha=alpha, linewidths=0)
    now = center(step - WINDOW / 2)
    draw_line(ax, now, -now @ now / 2, color=TRUTH, linewidth=2, label="truth, amid the window")
    (w_all, b_all), (w_new, b_new) = planes[step]
    draw_line(ax, w_all, b_all, color="black", linestyle="dashed", label="keeps every row")
    draw_line(ax, w_new, b_new, color="black", linewidth=2, label="forgets old rows")
    ax.set(title=f"after chunk {step}", xlim=(-5.5, 5.5), ylim=(-5.5, 5.5), aspect="equal")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)

# %%
# Effect on the G-mean
# --------------------
# G-mean of each chunk before it is learned. After half a circle the old rows are misleading, and the model
# that keeps them misses all rare rows until the circle closes.

fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
for (label, values), style in zip(results.items(), ("--", "-"), strict=True):
    smooth = np.convolve(values, np.ones(5) / 5, mode="valid")
    ax.plot(np.arange(3, 3 + len(smooth)), smooth, style, color="black", label=label)
    print(f"{label}: mean G-mean {np.mean(values):.3f}")
ax.set(xlabel="chunk", ylabel="G-mean, mean of 5 chunks", ylim=(0, 1))
ax.legend(loc="lower left", frameon=False)
plt.show()
