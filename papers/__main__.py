"""Command line interface of the experiments: ``python -m papers``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from papers import Cells, Context, Experiment, Report, experiments, find, judge, run
from papers.page import write_page
from papers.revision import stale_sections
from papers.sections import read_sections
from papers.storage import can_draw, write_report
from papers.tables import header, lines
from steelyard._threads import num_threads
from steelyard.cli import options as opt
from steelyard.cli.app import ErrorHandlingGroup
from steelyard.cli.output import emit_json, emit_table, print_status, stderr_console

__all__ = ["papers_command"]


@click.group("papers", cls=ErrorHandlingGroup)
def papers_command() -> None:
    """Recompute the tables and figures of the papers on which this library is based."""


@opt.command("list", papers_command)
def list_command(as_json: bool = opt.as_json) -> None:
    """List the experiments."""
    known = [{"name": e.name, "paper": e.paper, "title": e.title} for e in experiments().values()]
    if as_json:
        emit_json(known)
    else:
        emit_table(["name", "paper", "title"], known)


@opt.command("run", papers_command)
def run_command(
    names: tuple[str, ...] = opt.argument(nargs=-1, required=True, metavar="NAME...|all"),
    data_dir: Path | None = opt.option(
        "Folder of datasets.  [STEELYARD_DATA]", type=click.Path(exists=True, file_okay=False, path_type=Path)
    ),
    quick: bool = opt.flag("Fewer rounds: minutes for everything."),
    jobs: int | None = opt.count("Number of processes.  [number of cores]"),
    resume: bool = opt.flag("Continue an interrupted run."),
    seed: int = opt.count("Random seed.", minimum=0, default=0),
    output: Path = opt.option(
        "Folder for CSV, figures and reports.",
        names="-o --output",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("papers-results"),
    ),
    as_json: bool = opt.as_json,
) -> None:
    """Run experiments and print published and computed numbers side by side.

    NAME is a name of `python -m papers list`, or the beginning of several (`dcil`); `all` runs them all. A
    dataset that is not available is reported, and the other datasets are used. Ctrl-C keeps finished results.
    With --resume, the next run into the same folder reuses the cells of long tables (a learner on a dataset)
    whose seed, settings, data and library version are the same. The time that a reused cell took is included
    in the reported seconds.
    """
    chosen = _chosen(names)
    reports: list[Report] = []
    cells = Cells(output / "cells", resume=resume)
    context = partial(
        Context, data_dir=data_dir, quick=quick, seed=seed, jobs=jobs or num_threads(), cells=cells
    )
    if not can_draw():
        print_status("figures are not drawn: pip install 'steelyard[plots]'")
    try:
        with _bar() as bar:
            for number, experiment in enumerate(chosen, start=1):
                report = _run_one(experiment, context, bar, f"{number}/{len(chosen)}")
                write_report(report, output)
                reports.append(report)
                if not as_json:
                    _show(report)
    except KeyboardInterrupt:
        click.echo(f"stopped; {len(reports)} of {len(chosen)} experiments are in `{output}`", err=True)
        raise click.exceptions.Exit(130) from None
    finally:
        if as_json:
            emit_json([_plain(report) for report in reports])
    click.echo(f"results: {output}", err=True)


@opt.command("page", papers_command)
def page_command(
    results: tuple[Path, ...] = opt.argument(
        nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
    ),
    output: Path = opt.option(
        "The Markdown file to write; its figures are written to _static/papers in the same folder.",
        names="-o --output",
        required=True,
        type=click.Path(dir_okay=False, path_type=Path),
    ),
    as_json: bool = opt.as_json,
) -> None:
    """Write the documentation pages of the experiments from the RESULTS folders of `python -m papers run`."""
    write_page(results, output)
    if as_json:
        emit_json({"page": str(output)})
    click.echo(f"page: {output}", err=True)


@opt.command("stale", papers_command)
def stale_command(
    page: Path = opt.argument(type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    as_json: bool = opt.as_json,
) -> None:
    """List the sections of PAGE and its folder that are older than the code of their experiments."""
    modules = {name: experiment.function.__module__ for name, experiment in experiments().items()}
    reasons = stale_sections(read_sections(page.with_suffix("")), modules)
    rows = [{"name": name, "reason": reason} for name, reason in reasons.items()]
    if as_json:
        emit_json(rows)
    else:
        emit_table(["name", "reason"], rows)


def _chosen(names: tuple[str, ...]) -> list[Experiment]:
    known = experiments()
    chosen: dict[str, Experiment] = {}
    for name in names:
        begun = [e for e in known.values() if name == "all" or e.name.startswith(f"{name}-")]
        for experiment in begun if begun and name not in known else [find(name)]:
            chosen[experiment.name] = experiment
    return list(chosen.values())


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=stderr_console(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _run_one(experiment: Experiment, context: Callable[..., Context], bar: Progress, place: str) -> Report:
    label = f"{place} {experiment.name}"
    task = bar.add_task(label, total=None)

    def progress(what: str, done: int, total: int) -> None:
        bar.update(task, description=f"{label} {what}".rstrip(), completed=done, total=total)

    try:
        return run(experiment, context(progress=progress))
    finally:
        bar.remove_task(task)


def _show(report: Report) -> None:
    """Print the table to standard output and notes to standard error."""
    result = report.result
    if sys.stdout.isatty():
        table = Table(title=f"{report.paper}: {report.title}", box=None, header_style="bold", pad_edge=False)
        for column in header(result):
            table.add_column(column)
        for line in lines(result):
            table.add_row(*line)
        Console(highlight=False).print(table)
    else:
        for line in [["experiment", *header(result)], *([report.name, *line] for line in lines(result))]:
            click.echo("\t".join(line))
    for sentence in report.unavailable:
        click.echo(f"not available: {sentence}", err=True)
    for note in result.notes:
        print_status(f"note: {note}")


def _plain(report: Report) -> dict[str, Any]:
    rows = [
        {
            "on": row.subject,
            "learner": row.learner,
            "measure": row.measure,
            "paper": row.paper,
            "mean": row.mean,
            "std": row.std,
            "rounds": row.rounds,
            "verdict": str(judge(row)),
        }
        for row in report.result.rows
    ]
    return {
        "name": report.name,
        "paper": report.paper,
        "title": report.title,
        "seconds": report.seconds,
        "saved_seconds": report.saved_seconds,
        "seed": report.seed,
        "quick": report.quick,
        "rows": rows,
        "notes": report.result.notes,
        "unavailable": report.unavailable,
    }


if __name__ == "__main__":
    papers_command(prog_name="python -m papers")
