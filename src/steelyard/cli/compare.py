"""``steelyard compare``: two runs of ``steelyard stream`` side by side."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE
from steelyard.cli.output import emit_json, emit_table, json_option, print_message

_MEASURES = (
    "sensitivity", "specificity", "f1", "auc", "average_precision", "precision_at_k", "recall_at_k",
    "log_loss", "brier", "expected_calibration_error", "rows_per_second",
)  # fmt: skip


@click.command("compare")
@click.argument("first", type=IN_FILE)
@click.argument("second", type=IN_FILE)
@opt.report
@json_option
def compare_command(*, first: Path, second: Path, report: Path | None, as_json: bool) -> None:
    """Compare two runs, FIRST and SECOND, written by `steelyard stream ... --json > run.json`.

    Prints the measures of all models of both runs, and warns about differences between the runs that make
    the comparison unfair.
    """
    from steelyard.report.compare import compare_runs, read_run, write_comparison

    runs = read_run(first), read_run(second)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    if names[0] == names[1]:
        names = (f"{names[0]} (1)", f"{names[1]} (2)")
    found = compare_runs(*runs, names)
    if as_json:
        emit_json(found)
    else:
        leading = found["leading"]
        measures = [name for name in _MEASURES if any(line.get(name) is not None for line in found["lines"])]
        emit_table(
            ["run", "model", f"mean_{leading}", f"lowest_{leading}", leading, *measures], found["lines"]
        )
    for warning in found["warnings"]:
        print_message(f"note: {warning}")
    if report is not None:
        write_comparison(*runs, report, names)
        print_message(f"report: {report}")
