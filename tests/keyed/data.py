"""Generated panel data, and scores of each key computed from the rows by the documented formula."""

from __future__ import annotations

import numpy as np


def panel(rng, n_keys=30, n_rows=1500, n_features=3, share=0.2):
    """Return rows, with the key in column 0, and labels. The mean of the features differs between keys."""
    keys = rng.integers(0, n_keys, n_rows)
    y = (rng.random(n_rows) < share).astype(int)
    usual = rng.normal(size=(n_keys, n_features)) * 2.0
    X = usual[keys] + rng.normal(size=(n_rows, n_features)) + y[:, None]
    return np.column_stack([keys, X]), y


def reference_scores(X, y, questions, *, C, borrow, quantizer):
    """Return scores by the documented formula, computed one key at a time from quantized rows."""
    rows = np.floor(X[:, 1:] / quantizer.steps + 0.5) * quantizer.steps
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    E = np.column_stack([(rows - mean) / deviation, np.ones(len(rows))])
    test_rows = np.column_stack([(questions[:, 1:] - mean) / deviation, np.ones(len(questions))])
    classes = np.unique(y)
    counts = np.array([(y == c).sum() for c in classes])
    planes = classes[1:] if len(classes) == 2 else classes
    scores = np.empty((len(questions), len(planes)))
    for i, key in enumerate(questions[:, 0]):
        gram = []
        for c, count in zip(classes, counts, strict=True):
            own, group = E[(y == c) & (X[:, 0] == key)], E[y == c]
            share = min(1.0, borrow / count)
            weight = len(own) + share * count
            gram.append(count * (own.T @ own + share * group.T @ group) / weight)
        for j, plane in enumerate(planes):
            positive = counts[classes == plane][0] / counts.sum()
            factors = np.where(classes == plane, 1.0 - positive, positive)
            A = np.eye(E.shape[1]) / C + sum(f * g for f, g in zip(factors, gram, strict=True))
            signs = np.where(classes == plane, 1.0, -1.0)
            b = sum(f * s * g[-1] for f, s, g in zip(factors, signs, gram, strict=True))
            scores[i, j] = test_rows[i] @ np.linalg.solve(A, b)
    return scores[:, 0] if scores.shape[1] == 1 else scores
