"""Compare the approximate SVM solver with LIBSVM on the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from steelyard import _native
from steelyard.alignment.machine import Problem, RoughSolver, Solution, _max_parallel_machines
from steelyard.kernels import Kernel
from tests.alignment.reference import imbalanced

TOLERANCE = 1e-4


def make_problem(rng, n=203, weights=None):
    X, y = imbalanced(rng, n, n // 8)
    kernel = Kernel("rbf", gamma=0.5).block(X)
    return Problem(kernel, np.where(y == 1, 1.0, -1.0), np.ones(n) if weights is None else weights)


def splits(problem, n_parts=3):
    return [np.flatnonzero(np.arange(len(problem.signs)) % 5 != part) for part in range(n_parts)]


def no_support(problem):
    """Return an initial solution without support vectors, in which all rows are far from the margin."""
    return Solution(np.zeros(len(problem.signs)), 0.0, 9.0 * problem.signs)


def libsvm_scores(problem, rows, factor, C):
    K = factor[:, None] * factor * problem.kernel
    svc = SVC(C=C, kernel="precomputed", tol=1e-8)
    svc.fit(K[np.ix_(rows, rows)], problem.signs[rows], problem.weights[rows])
    return svc.decision_function(K[:, rows])


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_rough_solver_scores_match_libsvm(rng, C):
    problem = make_problem(rng)
    parts, factors = splits(problem), rng.uniform(0.5, 2.0, (3, 203))
    solutions = RoughSolver(problem, parts, no_support(problem), C, tolerance=TOLERANCE).solve(factors)
    for rows, factor, solution in zip(parts, factors, solutions, strict=True):
        np.testing.assert_allclose(solution.scores, libsvm_scores(problem, rows, factor, C), atol=5e-3)
        assert not solution.dual[np.setdiff1d(np.arange(203), rows)].any()
        assert abs(solution.dual.sum()) < 1e-9 * np.abs(solution.dual).sum()
        assert (np.abs(solution.dual) <= C).all()
        assert (solution.dual * problem.signs >= 0).all()


def test_row_weights_are_upper_bounds_of_dual_variables(rng):
    problem = make_problem(rng, weights=rng.uniform(0.0, 2.0, 203))
    rows, factor = np.arange(203), np.ones((1, 203))
    [solution] = RoughSolver(problem, [rows], no_support(problem), 2.0, tolerance=TOLERANCE).solve(factor)
    assert (np.abs(solution.dual) <= 2.0 * problem.weights + 1e-12).all()
    np.testing.assert_allclose(solution.scores, libsvm_scores(problem, rows, factor[0], 2.0), atol=5e-3)


def test_initial_working_set_does_not_change_scores(rng):
    problem, factors = make_problem(rng), np.ones((3, 203))
    few = no_support(problem)
    wrong = Solution(np.where(np.arange(203) % 2, problem.signs, 0.0), 0.0, rng.normal(size=203))
    first, second = (
        RoughSolver(problem, splits(problem), similar, 10.0, tolerance=TOLERANCE).solve(factors)
        for similar in (few, wrong)
    )
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=5e-3)


def test_second_solve_of_rough_solver_matches_libsvm(rng):
    problem = make_problem(rng)
    solver = RoughSolver(problem, splits(problem), no_support(problem), 10.0, tolerance=TOLERANCE)
    solver.solve(np.ones((3, 203)))
    factors = rng.uniform(0.8, 1.2, (3, 203))
    for rows, factor, solution in zip(splits(problem), factors, solver.solve(factors), strict=True):
        np.testing.assert_allclose(solution.scores, libsvm_scores(problem, rows, factor, 10.0), atol=5e-3)


def test_solver_terminates_on_equal_rows(rng):
    problem = Problem(np.ones((40, 40)), np.where(np.arange(40) < 5, 1.0, -1.0), np.ones(40))
    [solution] = RoughSolver(problem, [np.arange(40)], no_support(problem), 1.0).solve(np.ones((1, 40)))
    assert np.isfinite(solution.scores).all()
    assert np.ptp(solution.scores) < 1e-9


@pytest.mark.parametrize(("n_working", "n_machines"), [(0, 20_000), (10, 50), (25, 8), (50, 2), (100, 2)])
def test_parallel_solvers_use_at_most_the_memory_of_one_kernel_matrix(n_working, n_machines):
    working = np.arange(100) < np.array([[n_working], [n_working // 2]])
    assert _max_parallel_machines(working) == n_machines


@pytest.mark.parametrize("n", [9, 64, 131])
def test_rough_solver_scores_are_independent_of_threads_and_simd_level(rng, monkeypatch, n):
    problem = make_problem(rng, n)
    parts, factors = splits(problem, 2), np.ones((2, n))

    def scores():
        solver = RoughSolver(problem, parts, no_support(problem), 1.0, tolerance=TOLERANCE)
        return np.array([solution.scores for solution in solver.solve(factors)])

    expected = scores()
    monkeypatch.setattr("steelyard.alignment.machine.num_threads", lambda: 3)
    np.testing.assert_array_equal(scores(), expected)
    chosen = _native.simd_level()
    try:
        for level in _native.simd_levels():
            _native.use_simd_level(level)
            np.testing.assert_allclose(scores(), expected, atol=5e-3)
    finally:
        _native.use_simd_level(chosen)
