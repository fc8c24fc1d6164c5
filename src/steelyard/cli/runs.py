"""Rows, labels, messages and results of prequential runs."""

from __future__ import annotations

import math
import re
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from steelyard.brokers.interface import without_credentials
from steelyard.cli import options as opt
from steelyard.cli.decision import positive_error
from steelyard.cli.output import print_message
from steelyard.exceptions import DataError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator, PrequentialResult
    from steelyard.streams.chunks import Chunk, RowStream
    from steelyard.tables import TableStream

# The measures for two classes do not depend on thresholds, so that unsuitable thresholds are not penalised.
_MEASURES = {"average_precision": "average precision", "auc": "AUC", "brier": "Brier score (lower is better)"}
_MEASURES_OF_MANY = {"macro_recall": "mean recall", "log_loss": "log-loss (lower is better)"}
_LABEL_CHUNK_ROWS = 10_000  # rows of the file of labels that are read at a time
shuffle_option: Any = opt.option(
    "Read all rows into memory and shuffle them, for tables sorted by label.", "SEED", type=click.IntRange(0)
)


def shuffled(stream: TableStream, seed: int) -> Iterator[Chunk]:
    """Read all rows of a table and yield them in random order."""
    import numpy as np

    chunks = list(stream)
    rows = _joined(chunks)
    unlabelled = [chunk.unlabelled for chunk in chunks if chunk.unlabelled is not None]
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    for begin in range(0, len(rows), stream.chunk):
        part = rows.take(begin, begin + stream.chunk)
        if unlabelled and begin + stream.chunk >= len(rows):
            part.unlabelled = _joined(unlabelled)
        yield part


def _joined(chunks: list[Chunk]) -> Chunk:
    """Return several chunks of a table as one chunk, with zeros for features that were added later."""
    import numpy as np

    from steelyard.streams.chunks import Chunk, padded
    from steelyard.tables.frames import concat_tables

    last = chunks[-1]
    names = [name for name in ("y", "time", "fixed", "codes") if getattr(last, name) is not None]
    joined: dict[str, Any] = {n: np.concatenate([getattr(chunk, n) for chunk in chunks]) for n in names}
    if any(chunk.columns is not None for chunk in chunks):
        joined["columns"] = concat_tables([c.X if c.columns is None else c.columns for c in chunks])
    X = np.concatenate([padded(chunk.X, last.X.shape[1]) for chunk in chunks])
    return Chunk(X, table=last.table, **joined)


def parse_seconds(text: str) -> float | None:
    """Return a time span such as 3d or 12h in seconds, or None for another text."""
    from steelyard.windowing.sliding import window_size

    try:
        size = window_size(text)
    except ValueError:
        return None
    return None if isinstance(size, int) else size.total_seconds()


def parse_delay(text: str) -> tuple[int, float | None]:
    """Return the delay of labels in rows, and in seconds if it is a time span such as 3d or 12h."""
    if text.isdecimal():
        return int(text), None
    seconds = parse_seconds(text)
    if seconds is None:
        raise click.UsageError(
            f"--delay expects a number of rows or a time span such as 3d or 12h; got {text!r}."
        )
    return 0, seconds


def delayed_by_time(
    chunks: Iterable[Chunk], evaluator: PrequentialEvaluator, seconds: float
) -> Iterator[Chunk]:
    """Yield the chunks and set ``evaluator.delay`` to the number of rows whose labels have not arrived.

    Labels arrive in the order of the rows, each ``seconds`` after its row. At the end ``evaluator.delay`` is
    set to the largest number of rows that waited for their labels at the same time.
    """
    waiting: deque[float] = deque()
    longest = 0
    for chunk in chunks:
        assert chunk.time is not None  # the command requires --time
        if not len(chunk):
            yield chunk  # no row of this chunk has a label
            continue
        waiting.extend(chunk.time.tolist())
        while waiting and waiting[0] <= chunk.time[-1] - seconds:
            waiting.popleft()
        evaluator.delay = len(waiting)
        longest = max(longest, len(waiting))
        yield chunk
    evaluator.delay = longest


# -- labels in a separate file ------------------------------------------------------------------------


def parse_labels(texts: Iterable[str]) -> list[Any]:
    """Return labels as a table reader does: as integers if all texts are integers or all are booleans."""
    texts = list(texts)
    if {text.lower() for text in texts} <= {"true", "false"}:
        return [int(text.lower() == "true") for text in texts]
    are_integers = all(re.fullmatch(r"-?\d{1,18}", text) for text in texts)
    return [int(text) if are_integers else text for text in texts]


def read_labels(path: Path, id_column: str, target: str) -> dict[str, Any]:
    """Return the labels in a file as a dictionary by row id. Rows without a label are omitted."""
    from steelyard.tables import open_stream

    stream = open_stream(
        str(path), None, features=target, categorical=target, missing="zero", chunk=_LABEL_CHUNK_ROWS
    ).keep([id_column, target])
    found = {
        key: label
        for chunk in stream
        for key, label in zip(chunk.kept[id_column].tolist(), chunk.kept[target].tolist(), strict=True)
        if label not in {None, ""}
    }
    return dict(zip(found, parse_labels(found.values()), strict=True))


def join_labels(
    stream: TableStream, labels: Mapping[str, Any], id_column: str, target: str
) -> Iterator[Chunk]:
    """Yield the chunks with labels joined by id; rows without a label are in ``chunk.unlabelled``."""
    import numpy as np

    from steelyard.streams.chunks import Chunk

    for chunk in stream:
        if target in stream.encoder.columns_:
            raise DataError(
                f"the label column {target!r} is in the file of --labels and also in SOURCE, where it would "
                "be a feature.",
                source=stream.name,
                hint=f"--drop {target}",
            )
        found = [labels.get(key) for key in chunk.kept[id_column].tolist()]
        known = np.array([label is not None for label in found])
        filler = next((label for label in found if label is not None), 0)
        y = np.array([filler if label is None else label for label in found])
        yield Chunk(chunk.X, y, chunk.first_row, chunk.time, chunk.fixed, columns=chunk.columns).split(known)


def _command_line() -> str:
    """Return the command line with all given arguments and options, in the order of the help text."""
    context = click.get_current_context()
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
    result.command = _command_line()
    return result


def print_notes(result: PrequentialResult) -> None:
    """Print why nothing was measured, how many rows have no label, and whether rows are sorted by label."""
    if result.n_rows and result.delay >= result.n_rows:
        print_message(
            f"note: no row was tested, because no label arrives within {result.n_rows:,} rows; use more rows"
        )
    n_rows, positive, predicted = result.n_unlabelled, result.positive, ""
    if positive is not None:
        counts = (f"{name} {n[positive]:,}" for name, n in result.unlabelled_predictions().items())
        predicted = f" (predicted as {positive}: {', '.join(counts)})"
    if n_rows:
        print_message(
            f"note: {n_rows:,} of {n_rows + result.n_rows:,} rows have no label: they were predicted, not "
            f"learned{predicted}"
        )
    for notice in result.order_notices:
        print_message(f"note: {result.stream_name}: {notice} (--shuffle SEED)")


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
