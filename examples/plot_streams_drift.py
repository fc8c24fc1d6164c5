"""
Concept drift and a changing class ratio
========================================

The share of the rare class varies between one percent and one half, and after two thirds of the stream
both classes move. Four learners are evaluated prequentially on the same rows.
"""

# %%
# Models
# ------
# Three proximal SVMs and SGD: adaptive windows, all rows, and an unweighted model with a sliding window.

import matplotlib.pyplot as plt
from sklearn.linear_model import SGDClassifier

from steelyard import ProximalSVC
from steelyard.evaluation import SklearnPeer, prequential
from steelyard.streams import demo_stream
from steelyard.windowing import AdaptiveWindows, SlidingWindow

stream = demo_stream(40_000)
models = {
    "balanced, adaptive": AdaptiveWindows(ProximalSVC()),
    "balanced, all rows": ProximalSVC(),
    "unweighted, window": SlidingWindow(ProximalSVC(class_weight=None), size=4000),
    "SGD": SklearnPeer(SGDClassifier(random_state=0)),
}
result = prequential(models, stream, window=2000, every=500)
for row in result.summary():
    print(f"{row['model']:<25} mean {row['mean_g_mean']:.3f}   lowest {row['lowest_g_mean']:.3f}")

# %%
# Results over time
# -----------------
# Unbalanced models miss the rare class when it is rarest. After the drift, the model of all rows stays wrong.

COLOURS = ["#4477aa", "#66ccee", "#cc6677", "#228833"]
layout = {"height_ratios": [3, 1], "layout": "constrained"}
figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5.5), sharex=True, **layout)
for name, colour in zip(models, COLOURS, strict=True):
    records = result.records(name)
    rows = [record["row"] for record in records]
    top.plot(rows, [record["g_mean"] for record in records], color=colour, label=name, lw=1.8)
first = result.records("balanced, adaptive")
top.fill_between(
    [record["row"] for record in first],
    [record["g_mean_low"] for record in first],
    [record["g_mean_high"] for record in first],
    color=COLOURS[0],
    alpha=0.2,
    lw=0,
)
for axes in (top, bottom):
    for begin, end in stream.drifts:
        axes.axvspan(begin, end, color="#ccbb44", alpha=0.5, lw=0)
    axes.spines[["top", "right"]].set_visible(False)
top.set(ylabel="G-mean, last 2,000 rows", ylim=(0, 1.02))
top.legend(loc="lower left", frameon=False)
shares = [record["class_counts"].get(1, 0) / sum(record["class_counts"].values()) for record in first]
bottom.fill_between([record["row"] for record in first], shares, color="#999999", lw=0)
bottom.set(ylabel="rare class", xlabel="rows", ylim=(0, 0.6), xlim=(0, 40_000))
bottom.yaxis.set_major_formatter("{x:.0%}")
bottom.xaxis.set_major_formatter("{x:,.0f}")
plt.show()
