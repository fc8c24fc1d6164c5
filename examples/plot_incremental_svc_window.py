"""
A sliding window over a drifting stream, exact at every row
===========================================================

The rare class moves around the frequent one, one circle in 3,000 rows. A kernel SVM trained on all rows
so far remembers every earlier position of the rare class; a model of the last 400 rows follows it. With
:class:`~steelyard.IncrementalSVC` the window needs no refits: each update adds one row and removes one
row, and the model is exact after every row.
"""

# %%
# The stream: 10 % rare rows, on a circle. In one quarter of the circle the frequent class has a tail.

import matplotlib.pyplot as plt
import numpy as np

from steelyard import IncrementalSVC

rng = np.random.default_rng(3)
n_rows, window = 3_200, 400
rare = rng.random(n_rows) < 0.1
angle = 2.0 * np.pi * np.arange(n_rows) / 3_000
center = 2.2 * np.column_stack([np.cos(angle), np.sin(angle)])
X = rng.normal(scale=0.7, size=(n_rows, 2))
X[rare] = center[rare] + rng.normal(scale=0.45, size=(rare.sum(), 2))
in_tail = ~rare & (rng.random(n_rows) < 0.25)
X[in_tail] += np.abs(rng.normal(scale=1.4, size=(in_tail.sum(), 1))) * np.array([-1.0, 0.3])
y = rare.astype(int)

# %%
# Each row is predicted before the window moves.


def follow(forgets: bool):
    model = IncrementalSVC(C=5.0, gamma=0.7, class_weight="balanced").fit(X[:window], y[:window])
    hits, sizes = [], []
    for new in range(window, n_rows):
        old = new - window
        hits.append(model.predict(X[new : new + 1])[0] == y[new])
        forget = (X[old : old + 1], y[old : old + 1]) if forgets else None
        model.update(add=(X[new : new + 1], y[new : new + 1]), forget=forget)
        sizes.append(model.margin_size_)
    return model, np.array(hits), np.array(sizes)


windowed, window_hits, window_sizes = follow(forgets=True)
everything, all_hits, all_sizes = follow(forgets=False)
print(f"largest violation of the optimality conditions after all: {windowed.kkt_violation():.1e}")


def recent_gmean(hits, span=400):
    """Geometric mean of the hit rates of both classes over the rows before."""
    labels = y[window:]
    rates = []
    for label in (0, 1):
        mine = np.cumsum(labels == label, dtype=float)
        good = np.cumsum((labels == label) & hits, dtype=float)
        rates.append((good[span:] - good[:-span]) / (mine[span:] - mine[:-span]))
    return np.sqrt(rates[0] * rates[1])


# %%
# Top: recall of both models. Middle: the size of the margin set. Bottom: the boundary at four times.

figure = plt.figure(figsize=(9, 8), layout="constrained")
grid = figure.add_gridspec(3, 4, height_ratios=[1, 1, 1.15])
rows = np.arange(window, n_rows)
blue, orange, grey = "#1f6f8b", "#d9822b", "#b8bec4"

top = figure.add_subplot(grid[0, :])
top.plot(rows[400:], recent_gmean(window_hits), color=blue, label=f"last {window} rows")
top.plot(rows[400:], recent_gmean(all_hits), color=orange, label="all rows")
top.set(ylabel="G-mean of the\n400 rows before", xlim=(window, n_rows))
top.legend(frameon=False, ncols=2, loc="lower right")

middle = figure.add_subplot(grid[1, :], sharex=top)
middle.plot(rows, window_sizes, color=blue, lw=1)
middle.plot(rows, all_sizes, color=orange, lw=1)
middle.set(ylabel="rows in the\nmargin set", xlabel="rows seen", ylim=(0, None))

moments = (700, 1_400, 2_200, 3_000)
plane = np.stack(np.meshgrid(np.linspace(-5, 4, 90), np.linspace(-4, 4, 80)), axis=-1)
model = IncrementalSVC(C=5.0, gamma=0.7, class_weight="balanced").fit(X[:window], y[:window])
begin = 0
for axis_number, moment in enumerate(moments):
    model.update(
        add=(X[begin + window : moment], y[begin + window : moment]),
        forget=(X[begin : moment - window], y[begin : moment - window]),
    )
    begin = moment - window
    axis = figure.add_subplot(grid[2, axis_number])
    scores = model.decision_function(plane.reshape(-1, 2)).reshape(plane.shape[:2])
    axis.contour(plane[..., 0], plane[..., 1], scores, levels=[0.0], colors=[blue], linewidths=1.5)
    now = slice(begin, moment)
    axis.scatter(*X[now][y[now] == 0].T, s=4, color=grey, label="frequent")
    axis.scatter(*X[now][y[now] == 1].T, s=9, color=orange, label="rare")
    axis.set(title=f"after {moment:,} rows", xlim=(-5, 4), ylim=(-4, 4), xticks=[], yticks=[], aspect="equal")
    for other in (top, middle):
        other.axvline(moment, color=grey, lw=0.8, ls=":")
plt.show()
