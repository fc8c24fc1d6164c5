"""A few trials of each fuzzer; `make torture` runs many more."""

from __future__ import annotations

import pytest

from tests.safety import fuzz, fuzz_files


@pytest.mark.parametrize(
    ("area", "n"), [("files", 300), ("tables", 150), ("calls", 300), ("commands", 60), ("bodies", 200)]
)
def test_fuzzed_call_succeeds_or_raises_steelyard_error(area, n):
    report = fuzz.run(area, n, seed=2026)
    assert not report.faults, "\n".join(report.faults[:5])
    assert report.refused > 0
    assert report.taken > 0


def test_fuzz_trial_with_same_seed_is_identical():
    first, again = (fuzz.run("files", 40, seed=5, first=10) for _ in range(2))
    assert (first.refused, first.taken) == (again.refused, again.taken)


def test_fuzzer_reports_exceptions_that_are_not_steelyard_errors(monkeypatch):
    monkeypatch.setattr(fuzz_files, "_use", lambda model, subject: [].index(model))
    assert fuzz.run("files", 60, seed=1).faults
