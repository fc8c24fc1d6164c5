r"""
A kernel classifier with a budget
=================================

A rare class is in the middle of four clusters, so no linear boundary separates it.
:class:`steelyard.KOIL` keeps at most 50 support vectors per class. Each panel shows the decision function
and the support vectors after more rows of the stream.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from steelyard import KOIL

# %%
# One row in ten comes from the centre, the others from one of four corners.


def draw_rows(n_rows, rng):
    y = (rng.random(n_rows) < 0.1).astype(int)
    corners = rng.choice([1 / 3, 2 / 3], size=(n_rows, 2))
    centers = np.where(y[:, None] == 1, 1 / 2, corners)
    return centers + 0.1 * rng.normal(size=(n_rows, 2)), y


rng = np.random.default_rng(3)
X, y = draw_rows(4000, rng)
X_new, y_new = draw_rows(4000, rng)

# %%
# The model is shown after 20, 100, 500 and 4,000 rows. A full buffer keeps a uniform sample of all rows,
# and the weight of a removed row is added to its most similar neighbour.

model = KOIL(C=2.0, budget=50, gamma=25.0, random_state=0)
moments = [20, 100, 500, 4000]
low, high = 0.0, 1.0
axis = np.linspace(low, high, 160)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

figure, panels = plt.subplots(1, 4, figsize=(13, 3.9), sharex=True, sharey=True, layout="constrained")
seen = 0
for panel, moment in zip(panels, moments, strict=True):
    model.partial_fit(X[seen:moment], y[seen:moment])
    seen = moment
    scores = model.decision_function(grid).reshape(len(axis), len(axis))
    reach = np.abs(scores).max()
    panel.contourf(axis, axis, scores, levels=np.linspace(-reach, reach, 21), cmap="RdBu_r", alpha=0.75)
    panel.contour(axis, axis, scores, levels=[0.0], colors="black", linewidths=1.2)
    vectors, weights = model.support_vectors_, model.dual_coef_[0]
    style = {"s": 30, "edgecolor": "white", "linewidth": 0.6}
    panel.scatter(*vectors[weights < 0].T, marker="o", color="#15437a", label="frequent", **style)
    panel.scatter(*vectors[weights > 0].T, marker="^", color="#8c1d18", label="rare", **style)
    area = roc_auc_score(y_new, model.decision_function(X_new))
    panel.set_title(f"after {moment:,} rows\nAUC on new rows {area:.3f}", fontsize=11)
    panel.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    panel.set_xticks([0, 0.5, 1])
    panel.set_yticks([0, 0.5, 1])
panels[0].legend(title="support vectors", loc="lower right", fontsize=8, title_fontsize=8, framealpha=0.9)
plt.show()
