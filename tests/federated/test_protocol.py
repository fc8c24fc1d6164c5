"""Random histories of sites and messages: the hub has the digest of one estimator fitted on all rows."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.federated.histories import check

N_HISTORIES = 1_000  # `make torture-sites` runs 10,000
N_PARTS = 4


@pytest.mark.parametrize("part", range(N_PARTS))
def test_hub_digest_after_random_histories_equals_single_fit(part):
    n_seeds, compared, counts = N_HISTORIES // N_PARTS, 0, Counter()
    for seed in range(part * n_seeds, (part + 1) * n_seeds):
        history = check(seed)
        compared += bool(history.accepted)
        counts.update(history.counts)
    assert compared > n_seeds / 2, "most histories end with rows to compare"
    expected = {"crash and rejoin", "schema change", "columns rejected", "accepted", "late or twice", "twice"}
    assert expected | {"dropped", "forgotten"} <= set(counts), "every kind of event occurred"
