"""Random mistakes do no harm; `make torture` makes many more of them."""

from __future__ import annotations

import pytest

from tests.safety import fuzz, fuzz_files


@pytest.mark.parametrize(
    ("area", "n"), [("files", 300), ("tables", 150), ("calls", 300), ("commands", 60), ("bodies", 200)]
)
def test_a_mistake_is_refused_with_a_sentence_or_does_no_harm(area, n):
    report = fuzz.run(area, n, seed=2026)
    assert not report.faults, "\n".join(report.faults[:5])
    assert report.refused > 0
    assert report.taken > 0


def test_trials_can_be_repeated():
    first, again = (fuzz.run("files", 40, seed=5, first=10) for _ in range(2))
    assert (first.refused, first.taken) == (again.refused, again.taken)


def test_a_model_that_fails_without_a_sentence_would_be_found(monkeypatch):
    monkeypatch.setattr(fuzz_files, "_use", lambda model, subject: [].index(model))
    assert fuzz.run("files", 60, seed=1).faults
