"""ProximalSVC compared with one BLAS product, scikit-learn and river, in one run.

    python benchmarks/speed/bench_proximal.py [--quick]

Every line is a ratio of two times, each the best of several alternating measurements, with its target.
"""

from __future__ import annotations

import argparse
import resource

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk
from sklearn.linear_model import RidgeClassifier, SGDClassifier
from timing import best_times

from steelyard import ProximalSVC
from steelyard.proximal import ClassStatistics
from steelyard.proximal.solver import System, margin_equations, solve


def report(what: str, ratio: float, target: float, details: str, *, at_most: bool = False) -> None:
    met = ratio <= target if at_most else ratio >= target
    sign = "<=" if at_most else ">="
    print(
        f"{what:58s} {ratio:8.2f}  (target {sign} {target:g}: {'met' if met else 'MISSED'})  {details}",
        flush=True,
    )


def bench_chunks(rng: np.random.Generator) -> None:
    """Measure chunks of integers, which need one limb of the exact sums, and of doubles, which need two."""
    for d in (54, 300, 1000):
        for digits, n_classes in ((1, 2), (1, 10), (2, 2), (2, 10)):
            X = rng.normal(size=(10_000, d))
            X = np.round(X * 100.0) if digits == 1 else X
            y = rng.integers(0, n_classes, 10_000)
            model = ProximalSVC().fit(X[:2000], y[:2000])
            columns = X.T
            product, chunk = best_times(
                lambda c=columns: dsyrk(1.0, c, lower=1), lambda m=model, X=X, y=y: m.partial_fit(X, y)
            )
            details = f"{chunk * 100:.2f} us per row, dsyrk {product * 100:.2f}"
            report(
                f"10,000 rows, d={d}, {digits} digit(s), {n_classes} classes, rate / dsyrk",
                product / chunk,
                0.8 if digits == 1 else 0.25,
                details,
            )


def bench_single_rows(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(3000, 30)), rng.integers(0, 2, 3000)
    ours, sgd = ProximalSVC().fit(X, y), SGDClassifier().partial_fit(X, y, classes=[0, 1])

    def rows(model: ProximalSVC | SGDClassifier, number: int) -> None:
        for i in range(number):
            model.partial_fit(X[i : i + 1], y[i : i + 1])

    mine, theirs = best_times(lambda: rows(ours, 1000), lambda: rows(sgd, 100), repeats=5)
    mine, theirs = mine / 1000, theirs / 100
    report("one row, d=30, times faster than SGDClassifier", theirs / mine, 30, f"{mine * 1e6:.1f} us")
    try:
        from river import linear_model, preprocessing
    except ImportError:
        print("one row compared with river: river is not installed (pip install river)")
        return
    pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    dicts = [dict(enumerate(row)) for row in X[:1000].tolist()]
    labels = y[:1000].astype(bool).tolist()

    def river_rows() -> None:
        for x, label in zip(dicts, labels, strict=True):
            pipeline.learn_one(x, label)

    mine, theirs = best_times(lambda: rows(ours, 1000), river_rows, repeats=5)
    report("one row, d=30, times faster than river", theirs / mine, 3, f"river {theirs * 1e3:.1f} us")


def bench_against_ridge(rng: np.random.Generator) -> None:
    X = rng.normal(size=(500_000, 54))
    y = (rng.random(500_000) < 0.05).astype(int)
    ridge = RidgeClassifier(class_weight="balanced")

    def scratch() -> None:
        ProximalSVC().fit(X, y).coef_  # noqa: B018 - reading coef_ computes the planes

    mine, theirs = best_times(scratch, lambda: ridge.fit(X, y), repeats=4)
    report(
        "500,000 x 54 from scratch, times faster than Ridge",
        theirs / mine,
        3,
        f"{mine:.3f} s, Ridge {theirs:.3f}",
    )
    model = ProximalSVC().fit(X, y)
    new, labels = rng.normal(size=(1000, 54)), rng.integers(0, 2, 1000)

    def update() -> None:
        model.partial_fit(new, labels).coef_  # noqa: B018

    (mine,) = best_times(update, repeats=20)
    report(
        "1,000 new rows and a solution, times faster than refit", theirs / mine, 200, f"{mine * 1e3:.2f} ms"
    )


def bench_many_classes(rng: np.random.Generator) -> None:
    for d, target in ((300, 5), (1000, 10)):
        y = np.repeat(np.arange(270), 4)
        X = rng.normal(size=(len(y), d)) + rng.normal(size=(270, d))[y]
        statistics = ClassStatistics(d)
        statistics.add(X, y)

        def ours(statistics: ClassStatistics = statistics) -> np.ndarray:
            system = System(statistics)
            penalty = system.regularizer(standardize=True, penalize_intercept=True)
            return solve(margin_equations(system, "balanced", penalty), 1.0)

        def one_factor_a_class(statistics: ClassStatistics = statistics) -> np.ndarray:
            system = System(statistics)
            penalty = system.regularizer(standardize=True, penalize_intercept=True)
            equations = margin_equations(system, "balanced", penalty)
            planes = [
                cho_solve(
                    cho_factor(equations.penalized(equations.matrix(p), 1.0), lower=True, check_finite=False),
                    equations.rhs[p],
                    check_finite=False,
                )
                for p in range(270)
            ]
            return np.array(planes)

        difference = np.abs(ours() - one_factor_a_class()).max()
        mine, theirs = best_times(ours, one_factor_a_class, repeats=2)
        details = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f}; hyperplanes differ by {difference:.0e}"
        report(f"270 classes of 4 rows, d={d}, times faster to solve", theirs / mine, target, details)


def bench_predict(rng: np.random.Generator) -> None:
    for n_classes in (2, 10):
        X, y = rng.normal(size=(200_000, 54)), rng.integers(0, n_classes, 200_000)
        model = ProximalSVC().fit(X, y)
        coef = model.coef_
        weights = coef[0] if n_classes == 2 else coef.T
        product, mine = best_times(
            lambda X=X, w=weights: X @ w, lambda m=model, X=X: m.predict(X), repeats=15
        )
        details = f"{mine * 1e3:.1f} ms, product {product * 1e3:.1f}"
        report(
            f"predict 200,000 x 54, {n_classes} classes, time / product",
            mine / product,
            1.2,
            details,
            at_most=True,
        )


def bench_memory(rng: np.random.Generator, n_rows: int) -> None:
    model, chunk = ProximalSVC(), rng.normal(size=(50_000, 54))
    y = (rng.random(50_000) < 0.1).astype(int)
    model.partial_fit(chunk, y)
    before, seen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(y)
    while seen < n_rows:
        model.partial_fit(chunk, y)
        seen += len(y)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"memory after {seen:,} rows of 54 features: statistics {model.statistics_.nbytes / 1024:.0f} KiB, "
        f"peak of the process grew by {after - before} KiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--quick", action="store_true", help="one million rows instead of ten in the memory test"
    )
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    bench_chunks(rng)
    bench_single_rows(rng)
    bench_against_ridge(rng)
    bench_many_classes(rng)
    bench_predict(rng)
    bench_memory(rng, 1_000_000 if options.quick else 10_000_000)


if __name__ == "__main__":
    main()
