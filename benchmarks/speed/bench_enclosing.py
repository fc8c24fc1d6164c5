"""Speed of EnclosingClassifier: training compared with OneClassSVM, scaling with rows, prediction.

Run ``python benchmarks/speed/bench_enclosing.py``. ``--quick`` uses a tenth of the rows.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.svm import OneClassSVM
from timing import best_times

from steelyard import EnclosingClassifier
from steelyard.enclosing.bodies import TOLERANCE


def train(X, **parameters):
    model = EnclosingClassifier(**parameters).fit(X, np.zeros(len(X), dtype=int))
    model.radius_  # noqa: B018 - bodies are computed on first use
    return model


def against_one_class_svm(n_rows, repeats):
    X = np.random.default_rng(0).normal(size=(n_rows, 30))
    nu, gamma = 0.05, 1.0 / (30 * X.var())
    # OneClassSVM defines the optimality gap for weights that sum to nu * n and half of the dual objective.
    tolerance = TOLERANCE * nu * n_rows / 2
    fitted = {}

    def ours():
        fitted["ours"] = train(X, shape="sphere", kernel="rbf", gamma=gamma, outliers=nu)

    def theirs():
        fitted["theirs"] = OneClassSVM(nu=nu, gamma=gamma, tol=tolerance, cache_size=256).fit(X)

    mine, other = best_times(ours, theirs, repeats=repeats)
    print(f"rbf sphere, {n_rows:,} rows, 30 features, outliers 0.05, equal tolerance")
    print(f"  steelyard {mine:.3f} s   OneClassSVM {other:.3f} s   ratio {other / mine:.2f}")
    novelty = fitted["ours"].novelty_score(X)
    clear = np.abs(novelty) > 1e-5  # predictions of rows on the surface depend on rounding
    outside, flagged = novelty[clear] > 0, fitted["theirs"].decision_function(X[clear]) < 0
    alpha = fitted["ours"]._classes[0].body(fitted["ours"]._settings()).ball.alpha
    theirs_alpha = np.sort(fitted["theirs"].dual_coef_[0] / (nu * n_rows))
    ours_alpha = np.sort(alpha[alpha > 0])[-len(theirs_alpha) :]
    print(
        f"  same prediction for {np.mean(outside == flagged):.4%} of {clear.sum():,} rows off the surface;",
        end=" ",
    )
    gap = np.abs(ours_alpha - theirs_alpha[-len(ours_alpha) :]).max() * nu * n_rows
    print(f"sorted weights differ by at most {gap:.1e} of their bound\n")


def growth_with_rows(n_rows, repeats):
    print("linear ellipsoid, 30 features: seconds by rows (per row in microseconds)")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, 30)) @ rng.normal(size=(30, 30))
    for outliers in (0.0, 0.05):
        line = []
        for n in (n_rows // 8, n_rows // 4, n_rows // 2, n_rows):
            part = X[:n]
            (seconds,) = best_times(lambda part=part, o=outliers: train(part, outliers=o), repeats=repeats)
            line.append(f"{n:,}: {seconds:.3f} ({seconds / n * 1e6:.1f})")
        print(f"  outliers {outliers:<5g} " + "   ".join(line))
    print()


def prediction(n_classes, n_rows, repeats):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n_classes * 200, 30))
    y = np.repeat(np.arange(n_classes), 200)
    X += rng.normal(size=(n_classes, 30))[y] * 3
    fresh = rng.normal(size=(n_rows, 30)) * 3
    print(f"prediction, {n_classes} classes, {n_rows:,} rows, 30 features")
    for shape in ("ellipsoid", "sphere"):
        model = EnclosingClassifier(shape=shape).fit(X, y)
        model.predict(fresh[:1])
        width = 30 * n_classes if shape == "ellipsoid" else n_classes
        matrix = rng.normal(size=(30, width))
        predict, products = best_times(
            lambda m=model: m.predict(fresh), lambda a=matrix: fresh @ a, repeats=repeats
        )
        print(
            f"  {shape:10s} predict {predict:.4f} s   products alone {products:.4f} s   "
            f"ratio {predict / products:.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    share = 10 if options.quick else 1
    against_one_class_svm(20_000 // share, options.repeats)
    growth_with_rows(100_000 // share, options.repeats)
    prediction(50, 50_000 // share, options.repeats + 4)


if __name__ == "__main__":
    main()
