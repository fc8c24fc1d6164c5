"""The protocol under everything that happens to sites and messages, compared by digest."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.federated.histories import check

N_HISTORIES = 1_000  # `make torture-sites` plays 10,000
N_PARTS = 4


@pytest.mark.parametrize("part", range(N_PARTS))
def test_after_any_history_the_digest_is_that_of_one_learner_on_the_rows_behind(part):
    each, compared, counts = N_HISTORIES // N_PARTS, 0, Counter()
    for seed in range(part * each, (part + 1) * each):
        history = check(seed)
        compared += bool(history.behind)
        counts.update(history.counts)
    assert compared > each / 2, "most histories leave something to compare"
    everything = {"crash and rejoin", "schema change", "columns refused", "taken", "late or twice", "twice"}
    assert everything | {"dropped", "forgotten"} <= set(counts), "everything has happened"
