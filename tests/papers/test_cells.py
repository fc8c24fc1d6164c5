"""Stored results of parts of an experiment (cells) are reused only if their keys match."""

from __future__ import annotations

import pytest

from papers import Cells, Context, Experiment, Result, Row, run
from papers.cells import Cell
from papers.koil.contenders import CONTENDERS
from papers.koil.protocol import Task, benchmarks
from tests.papers.generated import generated, generated_splits

KOIL = CONTENDERS["KOIL RS++"]
KEY = {"set": "glass", "learner": "KOIL RS++", "seed": 0}


def test_interrupted_experiment_resumes_from_stored_cells(tmp_path):
    computed = []

    def fragile(number):
        if number == 3 and 3 not in computed:
            computed.append(3)
            raise KeyboardInterrupt
        computed.append(number)
        return {"square": number * number}

    def go(resume):
        context = Context(cells=Cells(tmp_path, resume=resume))
        return context.map(fragile, range(5), key=lambda number: {"number": number})

    with pytest.raises(KeyboardInterrupt):
        go(resume=False)
    assert [answer["square"] for answer in go(resume=True)] == [0, 1, 4, 9, 16]
    assert computed == [0, 1, 2, 3, 3, 4]


def test_run_without_resume_recomputes_cells(tmp_path):
    Cells(tmp_path).keep(KEY, Cell(1, 2.0))
    assert Cells(tmp_path).find(KEY) is None
    assert Cells(tmp_path, resume=True).find(KEY) == Cell(1, 2.0)


def test_experiments_of_one_command_share_cells(tmp_path):
    cells = Cells(tmp_path)
    cells.keep(KEY, Cell([0.5], 2.0))
    assert cells.find(KEY) == Cell([0.5], 2.0)


@pytest.mark.parametrize("other", [{"seed": 1}, {"set": "german"}, {"learner": "KOIL RS"}])
def test_stored_cell_with_other_key_is_recomputed(tmp_path, other):
    Cells(tmp_path).keep(KEY, Cell(1, 2.0))
    assert Cells(tmp_path, resume=True).find(KEY | other) is None


def test_stored_cell_of_other_version_is_recomputed(tmp_path, monkeypatch):
    Cells(tmp_path).keep(KEY, Cell(1, 2.0))
    monkeypatch.setattr("papers.cells.version", lambda _: "99.0")
    assert Cells(tmp_path, resume=True).find(KEY) is None


def test_damaged_stored_cell_is_recomputed(tmp_path):
    Cells(tmp_path).keep(KEY, Cell(1, 2.0))
    (file,) = tmp_path.glob("*.json")
    file.write_text("{", encoding="utf-8")
    assert Cells(tmp_path, resume=True).find(KEY) is None


def test_seconds_of_reused_cells_are_added(tmp_path):
    cells = Cells(tmp_path, resume=True)
    cells.keep({"number": 2}, Cell(4, 1000.0))

    def function(context):
        (value,) = context.map(abs, [2], key=lambda number: {"number": number})
        return Result([Row("set", "learner", "AUC", value)])

    report = run(Experiment("x", "p", "t", function), Context(cells=cells))
    assert report.result.rows[0].mean == 4
    assert report.saved_seconds == 1000.0
    assert 1000.0 < report.seconds < 1010.0


@pytest.mark.parametrize(
    "change", [{"params": {"C": 1.0, "gamma": 2.0}}, {"n_runs": 5}, {"seed": 1000}, {"budget": 8}]
)
def test_koil_cell_key_contains_settings(change):
    (glass,) = benchmarks(Context(load_set=generated, load_runs=generated_splits), ["glass"])
    usual = {"params": None, "n_runs": 20, "seed": 0}
    assert Task(glass, KOIL, **usual).key() != Task(glass, KOIL, **{**usual, **change}).key()


def test_koil_cell_key_depends_on_data():
    context = Context(load_set=generated, load_runs=generated_splits)
    tiny = Context(tiny=True, load_set=generated, load_runs=generated_splits)
    keys = [Task(*benchmarks(c, ["glass"]), KOIL, None, 20, 0, 8).key() for c in (context, tiny)]
    assert keys[0] != keys[1]
