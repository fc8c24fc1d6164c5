"""Output of prequential runs: the command line, notes, the comparison of models, and the report."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from steelyard.brokers.interface import without_credentials
from steelyard.cli.decision import positive_error
from steelyard.cli.output import print_message

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator, PrequentialResult
    from steelyard.streams.chunks import RowStream

# The measures for two classes do not depend on thresholds, so that unsuitable thresholds are not penalised.
_MEASURES = {"average_precision": "average precision", "auc": "AUC", "brier": "Brier score (lower is better)"}
_MEASURES_OF_MANY = {"macro_recall": "mean recall", "log_loss": "log-loss (lower is better)"}


def _command_line(context: click.Context) -> str:
    """Return the command line with all given arguments and options, in the order of the help text."""
    words = (context.find_root().info_name or "steelyard").split()  # python -m steelyard has several words
    if context.parent is not None:
        words.append(context.info_name or "")
    arguments, options = [], []
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, tuple) else [value]
        if isinstance(parameter, click.Argument):
            arguments += [without_credentials(str(value)) for value in values]
        elif getattr(parameter, "is_flag", False):
            options.append(max(parameter.opts, key=len))
        else:
            options += [word for one in values for word in (max(parameter.opts, key=len), one)]
    return shlex.join(str(word) for word in [*words, *arguments, *options])


def finished_result(
    evaluator: PrequentialEvaluator, rows: RowStream, positive: str | None
) -> PrequentialResult:
    """Return the result of a run; raise an error if no row had the positive class."""
    if (error := positive_error(evaluator, positive)) is not None:
        raise error
    return run_result(evaluator, rows)


def run_result(evaluator: PrequentialEvaluator, rows: RowStream) -> PrequentialResult:
    """Return the result so far, with the command line."""
    result = evaluator.result(rows)
    result.command = _command_line(click.get_current_context())
    return result


def print_notes(result: PrequentialResult) -> None:
    """Print why nothing was measured, how many rows have no label, and whether rows are sorted by label."""
    if result.n_rows and result.delay >= result.n_rows:
        print_message(
            f"note: no row was tested, because no label arrives within {result.n_rows:,} rows; use more rows"
        )
    n_rows = result.n_unlabelled
    if n_rows:
        print_message(
            f"note: {n_rows:,} of {n_rows + result.n_rows:,} rows have no label: they were predicted, not "
            f"learned{_positive_predictions(result)}"
        )
    for notice in result.order_notices:
        print_message(f"note: {result.stream_name}: {notice} (--shuffle SEED)")


def _positive_predictions(result: PrequentialResult) -> str:
    if result.positive is None:
        return ""
    counts = (f"{name} {n[result.positive]:,}" for name, n in result.unlabelled_predictions().items())
    return f" (predicted as {result.positive}: {', '.join(counts)})"


def write_report_to(path: Path | None, result: PrequentialResult) -> None:
    """Write the report of a run if a path was given."""
    if path is not None:
        result.report(path)
        print_message(f"report: {path}")


def versus_sentences(result: PrequentialResult, n_peers: int) -> list[str]:
    """Return one line for each measure and each pair of a model and a peer.

    The peers are the last ``n_peers`` models. A line contains the measure of both over all rows, and the
    number of windows in which the model is better than the peer. The counted windows do not overlap.
    """
    names = list(result.models)
    measures = _MEASURES if result.positive is not None else _MEASURES_OF_MANY
    return [
        line
        for peer in names[len(names) - n_peers :]
        for model in names[: len(names) - n_peers]
        for measure, text in measures.items()
        if (line := _sentence(result, model, peer, measure, text)) is not None
    ]


def _sentence(result: PrequentialResult, model: str, peer: str, measure: str, text: str) -> str | None:
    from steelyard.evaluation.tracking import LOSSES

    ours, theirs = (result.totals(name).get(measure, math.nan) for name in (model, peer))
    if math.isnan(ours) or math.isnan(theirs):
        return None
    sign = -1 if measure in LOSSES else 1
    verdict = (
        "equal" if f"{ours:.3f}" == f"{theirs:.3f}" else "better" if sign * (ours - theirs) > 0 else "worse"
    )
    better, n_windows = _windows(result, model, peer, measure, sign)
    windows = (
        f"; better in {better:,} of {n_windows:,} windows of {result.window:,} rows" if n_windows else ""
    )
    return f"{model} against {peer}, {text}: {ours:.3f} and {theirs:.3f}, {verdict}{windows}"


def _windows(result: PrequentialResult, model: str, peer: str, measure: str, sign: int) -> tuple[int, int]:
    """Return the number of disjoint windows in which the model is better, and the number of all windows."""
    of_peer = {record["row"]: record[measure] for record in result.records(peer)}
    better = n_windows = 0
    free_from = 0
    for record in result.records(model):
        difference = sign * (record[measure] - of_peer.get(record["row"], math.nan))
        if record["row"] - result.window >= free_from and not math.isnan(difference):
            free_from = record["row"]
            n_windows += 1
            better += difference > 0
    return better, n_windows
