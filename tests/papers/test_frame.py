"""Tests of the infrastructure of the experiments: verdicts, tables, processes, command line and pages."""

from __future__ import annotations

import json
import math

import pytest

from papers import Context, Experiment, Result, Row, Series, experiments, find, judge, run
from papers.__main__ import papers_command
from papers.page import write_page
from papers.plots import line_picture
from papers.storage import write_report
from papers.tables import header, lines, markdown_table, series_csv
from steelyard.exceptions import DatasetUnavailable, FileAccessError, ParameterError
from tests.runner import cli_runner


def row(mean, paper, **rest):
    return Row("set", "learner", "AUC", mean, paper=paper, **rest)


def test_result_within_tolerance_has_verdict_reached():
    assert str(judge(row(0.94, 0.95, tolerance=0.01))) == "reached"


def test_result_within_two_standard_errors_has_verdict_reached():
    assert str(judge(row(0.90, 0.95, std=0.25, rounds=100))) == "reached"


def test_result_beyond_tolerance_has_verdict_better_or_short():
    assert str(judge(row(0.97, 0.95))) == "better by 0.020"
    assert str(judge(row(0.90, 0.95))) == "short by 0.050"


def test_verdict_for_measure_to_minimize_prefers_smaller_value():
    assert judge(row(2.0, 3.0, aim="low")).kind == "better"


def test_verdict_for_ratio_prefers_value_nearer_to_one():
    assert judge(row(1.05, 0.9, aim="one")).kind == "better"
    assert judge(row(1.2, 0.9, aim="one")).kind == "short"


@pytest.mark.parametrize("pair", [(0.9, None), (0.9, math.nan), (math.nan, 0.9)])
def test_result_with_missing_number_has_no_verdict(pair):
    assert str(judge(row(*pair))) == "-"


def test_result_row_has_mean_and_standard_deviation_of_rounds():
    made = Row.of("set", "learner", "AUC", [1.0, 3.0])
    assert (made.mean, made.std, made.rounds) == (2.0, pytest.approx(math.sqrt(2)), 2)


def test_long_table_has_one_line_per_number():
    result = Result([row(0.9, 0.95, std=0.01, rounds=20)])
    assert header(result) == ["on", "learner", "measure", "paper", "ours", "verdict"]
    assert list(lines(result)) == [["set", "learner", "AUC", "0.950", "0.900 ± 0.010", "short by 0.050"]]


def test_wide_table_has_one_column_per_measure():
    rows = [row(0.9, 0.9), Row("set", "learner", "G-mean", 0.5)]
    result = Result(rows, layout="wide")
    assert header(result) == ["on", "learner", "AUC", "G-mean"]
    assert list(lines(result)) == [["set", "learner", "0.900 (0.900) =", "0.500"]]
    assert markdown_table(result).splitlines()[1] == "|---|---|---|---|"


def test_points_of_curves_are_written_to_file():
    text = series_csv([Series("figure", "panel", "curve", [1, 2], [0.1, 0.2], [0.0, 0.5])])
    assert text.splitlines()[1:] == ["figure,panel,curve,1,0.1,0.0", "figure,panel,curve,2,0.2,0.5"]


def square(number):
    return number * number


def test_parallel_map_gives_same_results_in_order():
    for jobs in (1, 2):
        assert list(Context(jobs=jobs).map(square, range(5))) == [0, 1, 4, 9, 16]


def test_progress_is_reported_per_task():
    reported = []
    Context(progress=lambda *report: reported.append(report)).map(square, [1, 2], "squares")
    assert reported == [("squares", 0, 2), ("squares", 1, 2), ("squares", 2, 2)]


def test_random_generator_depends_on_seed_and_key_only():
    assert Context(seed=3).integer("a", 1) == Context(seed=3, jobs=2).integer("a", 1)
    assert Context(seed=3).integer("a", 1) != Context(seed=4).integer("a", 1)
    assert Context(seed=3).integer("a", 1) != Context(seed=3).integer("a", 2)


def no_data(name):
    raise DatasetUnavailable(f"datasets.load: {name!r} cannot be had; tried nothing.")


def test_missing_dataset_is_reported_and_others_run():
    names = []

    def load_set(name):
        return no_data(name) if name == "car" else name

    def function(context):
        names.extend(name for name, _ in context.sets(["car", "iris"]))
        return Result([row(0.9, None)])

    report = run(Experiment("x", "p", "t", function), Context(load_set=load_set))
    assert names == ["iris"]
    assert report.unavailable == ("datasets.load: 'car' cannot be had; tried nothing.",)
    assert report.result.rows


def test_experiment_without_data_gives_report_without_rows():
    report = run(Experiment("x", "p", "t", lambda c: c.load("car")), Context(load_set=no_data))
    assert not report.result.rows
    assert report.unavailable


def test_misspelled_name_suggests_nearest():
    with pytest.raises(ParameterError, match=r"did you mean 'dcil-table-5\.1'"):
        find("dcil-table-51")


def test_list_command_prints_names_of_experiments():
    said = cli_runner().invoke(papers_command, ["list", "--json"])
    assert said.exit_code == 0
    assert {"dcil-table-5.1"} <= {line["name"] for line in json.loads(said.stdout)}


def test_run_command_writes_results_and_page(tmp_path, monkeypatch):
    monkeypatch.setenv("STEELYARD_OFFLINE", "1")
    monkeypatch.delenv("STEELYARD_DATA", raising=False)
    results, page = tmp_path / "results", tmp_path / "docs" / "papers.md"
    arguments = ["run", "distributed-table-1", "--quick", "--jobs", "1", "-o", str(results)]
    said = cli_runner().invoke(papers_command, arguments)
    assert said.exit_code == 0, said.output
    assert "BreastWisconsin" in said.stdout
    assert "not available: datasets.load: 'msweb' is not available" in said.stderr
    assert cli_runner().invoke(papers_command, ["page", str(results), "-o", str(page)]).exit_code == 0
    assert "| 1 | 3 | 3 | 0 | 0 |" in page.read_text(encoding="utf-8")
    assert "## Table I" in (page.parent / "papers" / "distributed.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "number"),
    [("dcil-table-5.3", 1), ("dcil-table", 3), ("own-koil", 3), ("all", len(experiments()))],
)
def test_run_command_accepts_name_or_prefix(tmp_path, monkeypatch, name, number):
    chosen = []

    def listen(experiment, _context):
        chosen.append(experiment.name)
        return run(Experiment(experiment.name, "p", "t", lambda _: Result()), Context())

    monkeypatch.setattr("papers.__main__.run", listen)
    assert cli_runner().invoke(papers_command, ["run", name, "-o", str(tmp_path)]).exit_code == 0
    assert len(chosen) == number
    assert name not in experiments() or chosen == [name]


def test_interrupt_keeps_finished_results(tmp_path, monkeypatch):
    def interrupted(_experiment, _context):
        raise KeyboardInterrupt

    monkeypatch.setattr("papers.__main__.run", interrupted)
    said = cli_runner().invoke(papers_command, ["run", "dcil-table-5.1", "-o", str(tmp_path)])
    assert said.exit_code == 130
    assert "stopped; 0 of 1 experiments" in said.stderr


def test_unknown_experiment_prints_message_and_exits_with_1():
    said = cli_runner().invoke(papers_command, ["run", "nonsense"])
    assert said.exit_code == 1
    assert "there is no experiment 'nonsense'" in said.stderr


def test_page_contains_pictures_and_no_paths(tmp_path):
    series = [Series("curve", "a", "learner", [1, 2], [0.1, 0.2])]
    picture = line_picture("curve", "A curve.", series, x_label="x", y_label="y")

    def function(context):
        context.unavailable.append("datasets.load: 'car' cannot be had; tried folder `/secret/place`.")
        return Result([row(0.9, 0.9)], ["A note."], series, [picture])

    write_report(run(Experiment("dcil-table-5.1", "P", "T", function), Context()), tmp_path / "results")
    write_page([tmp_path / "results"], tmp_path / "papers.md")
    text = (tmp_path / "papers" / "dcil.md").read_text(encoding="utf-8")
    assert "![A curve.](../_static/papers/dcil-table-5.1-curve.png)" in text
    assert (tmp_path / "_static" / "papers" / "dcil-table-5.1-curve.png").exists()
    assert "- A note." in text
    assert "secret" not in text


def test_page_of_empty_folder_raises(tmp_path):
    with pytest.raises(FileAccessError, match="there are no results"):
        write_page([tmp_path], tmp_path / "papers.md")
