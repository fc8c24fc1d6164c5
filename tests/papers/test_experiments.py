"""Every experiment runs on generated data and writes its files."""

from __future__ import annotations

import csv
import math
import sys

import pytest

from papers import Context, experiments, run
from papers.storage import read_reports, write_report
from tests.papers.generated import generated, generated_splits

EXPERIMENTS = experiments()


def tiny(seed=0):
    return Context(tiny=True, seed=seed, load_set=generated, load_runs=generated_splits)


@pytest.fixture(scope="module")
def reports():
    """Return a function that runs an experiment by name and seed, once for all tests."""
    kept = {}

    def report(name, seed=0):
        if (name, seed) not in kept:
            kept[name, seed] = run(EXPERIMENTS[name], tiny(seed))
        return kept[name, seed]

    return report


def numbers(report):
    """Return all computed numbers except durations."""
    rows = {(r.subject, r.learner, r.measure): r.mean for r in report.result.rows if not r.timed}
    curves = {(s.figure, s.panel, s.label): tuple(s.y) for s in report.result.series if not s.timed}
    return rows, curves


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_runs_on_tiny_data(name, reports):
    result = reports(name).result
    assert not reports(name).unavailable
    assert result.rows or result.pictures
    assert all(row.rounds >= 1 and math.isfinite(row.std) for row in result.rows if not math.isnan(row.mean))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_other_seed_changes_results(name, reports):
    values = [
        [f"{row.mean:.3g}" for row in reports(name, seed).result.rows]
        + [f"{y:.3g}" for s in reports(name, seed).result.series for y in s.y]
        for seed in (0, 1)
    ]
    all_zero = set(values[0]) | set(values[1]) == {"0"}  # results that are exactly zero for every seed
    assert values[0] != values[1] or all_zero


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_published_numbers_of_the_paper_do_not_affect_results(name, reports, monkeypatch):
    before = numbers(reports(name))
    for module in [m for key, m in sys.modules.items() if key.startswith("papers.")]:
        for constant in [c for c in vars(module) if c.startswith("PAPER_")]:
            monkeypatch.setattr(module, constant, perturbed(getattr(module, constant)))
    again = run(EXPERIMENTS[name], tiny())
    for ours, same in zip(before, numbers(again), strict=True):
        assert repr(ours) == repr(same)
    if any(row.paper for row in reports(name).result.rows):
        assert [r.paper for r in again.result.rows] != [r.paper for r in reports(name).result.rows]


def perturbed(numbers):
    """Return the same structure with other numbers."""
    if isinstance(numbers, dict):
        return {key: perturbed(value) for key, value in numbers.items()}
    if isinstance(numbers, list | tuple):
        return type(numbers)(perturbed(value) for value in numbers)
    return 1.7 * numbers + 0.1 if isinstance(numbers, float) else numbers


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_writes_tables_and_figures(name, reports, tmp_path):
    report = reports(name)
    write_report(report, tmp_path)
    with (tmp_path / name / "rows.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["mean"]) for line in lines] == pytest.approx(
        [row.mean for row in report.result.rows], nan_ok=True
    )
    for picture in report.result.pictures:
        assert (tmp_path / name / f"{picture.name}.png").read_bytes().startswith(b"\x89PNG")
    stored, pictures = read_reports(tmp_path)[name]
    assert repr(list(stored.result.rows)) == repr(list(report.result.rows))
    assert len(pictures) == len(report.result.pictures)
