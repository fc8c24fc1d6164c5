"""
New classes in a stream: unknown first, then learned
====================================================

A stream has two known classes of events. Later a third class appears, then a fourth. An ordinary
classifier would assign them to a known class. :class:`~steelyard.EnclosingClassifier` encloses each class
in its smallest body, so rows outside all bodies are predicted as "unknown". When a class is labelled, it
is learned without changing the others.
"""

# %%
# The stream
# ----------
# Forty chunks of fifty rows. Class "c" starts at chunk 12, class "d" at chunk 25; a class is labelled
# three chunks after its first appearance.

import matplotlib.pyplot as plt
import numpy as np

from steelyard import EnclosingClassifier

rng = np.random.default_rng(7)
MEANS = {"a": (0.0, 0.0), "b": (6.0, 1.0), "c": (1.5, 6.5), "d": (7.5, 7.0)}
SHAPES = {
    "a": [[1.0, 0.6], [0.0, 0.5]],
    "b": [[0.5, -0.5], [0.0, 0.9]],
    "c": [[1.3, 0.0], [0.0, 0.4]],
    "d": [[0.5, 0.3], [0.3, 0.8]],
}
BEGINS = {"a": 0, "b": 0, "c": 12, "d": 25}
TAUGHT = {"c": 15, "d": 28}
N_CHUNKS, CHUNK = 40, 50


def next_chunk(number):
    present = [label for label, begin in BEGINS.items() if begin <= number]
    y = rng.choice(present, size=CHUNK)
    X = np.array([MEANS[label] + rng.normal(size=2) @ SHAPES[label] for label in y])
    return X, y


# %%
# Predict, then learn
# -------------------
# Every chunk is predicted before it is learned. Rows of known classes are learned with their labels; rows of
# an unlabelled class are kept until its label is known.

model = EnclosingClassifier(outliers=0.02, ridge="auto")
pending_rows, pending_labels, seen, snapshots = [], [], [], {}
unknown_share = {label: np.full(N_CHUNKS, np.nan) for label in MEANS}

for number in range(N_CHUNKS):
    X, y = next_chunk(number)
    if number > 0:
        answers = model.predict(X, unknown="unknown")
        for label in np.unique(y):
            unknown_share[label][number] = np.mean(answers[y == label] == "unknown")
        seen.append((X, answers))
    pending_rows.append(X)
    pending_labels.append(y)
    named = [label for label in MEANS if TAUGHT.get(label, 0) <= number]
    rows, labels = np.concatenate(pending_rows), np.concatenate(pending_labels)
    known = np.isin(labels, named)
    model.partial_fit(rows[known], labels[known])
    pending_rows, pending_labels = [rows[~known]], [labels[~known]]
    if number in {11, 14, 39}:
        bodies = EnclosingClassifier(**model.get_params()).merge(model)
        snapshots[number] = (bodies, *map(np.concatenate, zip(*seen[-3:], strict=True)))

# %%
# Result
# ------
# The outlines are the bodies; crosses are rows of the last three chunks that were predicted as "unknown". In
# the middle the third class has appeared and is not labelled yet.

COLOURS = {"a": "#4477aa", "b": "#ee6677", "c": "#228833", "d": "#aa3377", "unknown": "#222222"}
figure = plt.figure(figsize=(10, 6.2), layout="constrained")
panels = figure.subplot_mosaic([["before", "appears", "taught"], ["share"] * 3], height_ratios=[3, 2])
grid_x, grid_y = np.meshgrid(np.linspace(-4.5, 11.5, 260), np.linspace(-4, 11, 260))
grid = np.column_stack([grid_x.ravel(), grid_y.ravel()])
titles = {
    "before": "two classes are known",
    "appears": "a third appears, not named yet",
    "taught": "four have been taught",
}

for (name, title), (bodies, X, answers) in zip(titles.items(), snapshots.values(), strict=True):
    axes = panels[name]
    ratios = bodies.distance_ratio(grid)
    for column, label in enumerate(bodies.classes_):
        ratio = ratios[:, column].reshape(grid_x.shape)
        axes.contour(grid_x, grid_y, ratio, levels=[1.0], colors=COLOURS[label])
        mine = answers == label
        axes.scatter(*X[mine].T, s=9, color=COLOURS[label], alpha=0.6, linewidths=0)
        axes.annotate(label, bodies.center_[label], fontsize=14, fontweight="bold", ha="center", va="center")
    strangers = answers == "unknown"
    axes.scatter(*X[strangers].T, s=22, marker="x", color=COLOURS["unknown"], linewidths=1.0)
    axes.set(title=title, xlim=(-4.5, 11.5), ylim=(-4, 11), xticks=[], yticks=[], aspect="equal")

axes = panels["share"]
for label in MEANS:
    axes.plot(
        100 * unknown_share[label], color=COLOURS[label], marker="o", markersize=3, label=f"class {label}"
    )
for label, number in TAUGHT.items():
    axes.axvline(number + 0.5, color=COLOURS[label], linestyle=":", linewidth=1.2)
    axes.annotate(f"{label} is taught", (number + 0.9, 80), color=COLOURS[label])
axes.set(
    xlabel="chunk of the stream", ylabel='answered "unknown" (%)', xlim=(0, N_CHUNKS - 0.5), ylim=(-4, 104)
)
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="center left", frameon=False)
plt.show()

# %%
# A class can be removed without changing the others.

before = model.distance_ratio(grid)
model.forget_class("a")
print("classes left:", model.classes_.tolist())
print("the others unchanged:", np.array_equal(model.distance_ratio(grid), before[:, 1:]))
