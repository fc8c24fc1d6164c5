"""
Kernel boundary alignment
=========================

A rare class is at the edge of a frequent one. The boundary of a plain SVM is too close to the few rare
rows. :class:`~steelyard.AlignedSVC` estimates the desired position on held-out rows, magnifies space
around it and shifts the threshold. Left: the plain boundary. Centre: the magnification. Right: the
aligned boundary.
"""

# %%
# Fifty rare rows along a curve and a thousand others.
import matplotlib.pyplot as plt
import numpy as np

from steelyard import AlignedSVC
from steelyard.metrics import g_mean_score


def bend(n_rare, n_other, seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, np.pi, n_rare)
    rare = 2.0 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.35 * rng.normal(size=(n_rare, 2))
    other = rng.normal(size=(n_other, 2)) * [1.1, 0.9] - [0.0, 0.3]
    return np.concatenate([other, rare]), np.repeat([0, 1], [n_other, n_rare])


X, y = bend(50, 1000, 0)
X_new, y_new = bend(500, 10000, 1)

# %%
# All models have the same C and kernel. ``rounds_`` describes each round.
settings = {"C": 10.0, "kernel": "rbf", "gamma": 0.5}
plain = AlignedSVC(**settings, alignment=None).fit(X, y)
shifted = AlignedSVC(**settings, max_iter=0).fit(X, y)
aligned = AlignedSVC(**settings).fit(X, y)
for number, one in enumerate(aligned.rounds_):
    print(
        f"round {number}: eta {one.eta:.2f}, support rows {one.n_support}, "
        f"wrong pairs {one.validation_loss:.3f}{'' if one.kept else ' (not kept)'}"
    )

# %%
# G-mean on new rows: the threshold shift has the largest effect.
for name, model in (("plain", plain), ("shift alone", shifted), ("aligned", aligned)):
    print(f"{name:12s} {g_mean_score(y_new, model.predict(X_new)):.3f}")

# %%
# Plot the boundaries and D(x).
axis_x, axis_y = np.linspace(-3.6, 3.6, 120), np.linspace(-3.4, 3.4, 110)
grid = np.stack(np.meshgrid(axis_x, axis_y), axis=-1)


def on_grid(function):
    return function(grid.reshape(-1, 2)).reshape(grid.shape[:2])


factor = on_grid(aligned.alignment_factor)
before, after = on_grid(plain.decision_function), on_grid(aligned.decision_function)
figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.3), sharex=True, sharey=True, layout="constrained")
shown = axes[1].pcolormesh(axis_x, axis_y, factor, cmap="cividis", shading="gouraud")
figure.colorbar(shown, ax=axes[1], shrink=0.85, label="D(x)")
axes[1].contour(axis_x, axis_y, after, levels=[0.0], colors="white", linewidths=1.2)
for axis, scores in ((axes[0], before), (axes[2], after)):
    axis.contourf(axis_x, axis_y, scores > 0, levels=[0.5, 1.5], colors=["#f3d9dc"])
    axis.contour(axis_x, axis_y, scores, levels=[0.0], colors="black", linewidths=1.4)
    axis.scatter(*X[y == 0].T, s=5, color="#7aa6c2", alpha=0.7, linewidths=0, label="frequent")
    axis.scatter(*X[y == 1].T, s=18, color="#c0392b", edgecolors="white", linewidths=0.5, label="rare")
axes[0].set(title="plain SVM: D = 1 everywhere", xlabel="first feature", ylabel="second feature")
axes[1].set(title="D(x) after the rounds", xlabel="first feature")
axes[2].set(title="aligned and shifted", xlabel="first feature")
axes[0].legend(loc="lower left", framealpha=0.9)
for axis in axes:
    axis.set(aspect="equal", xlim=axis_x[[0, -1]], ylim=axis_y[[0, -1]])
plt.show()
