"""``steelyard stream``: learn from a stream, measure it honestly, show what happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.interrupts import StopOnInterrupt
from steelyard.cli.models_io import check_can_be_saved, open_table, source_of
from steelyard.cli.options import (
    ColumnOptions,
    count_option,
    gathered,
    measure_window_option,
    model_options,
    positive_option,
    query_option,
    report_option,
    tested_column_options,
)
from steelyard.cli.output import emit_json, emit_table, json_option, talk, tell
from steelyard.cli.panel import StreamPanel
from steelyard.cli.positive import check_positive, positive_refusal
from steelyard.cli.provenance import command_line
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialEvaluator, PrequentialResult
    from steelyard.streams import RowStream

__all__ = ["stream_command"]

_DEMO_MODELS = (
    "auto",
    "balanced=proximal",
    "unweighted=proximal-unweighted",
    "SGD=sklearn:linear_model.SGDClassifier",
)
_DEMO_WINDOW = "4000"
_COLUMNS = (
    "model",
    "positive",
    "g_mean",
    "mean_g_mean",
    "lowest_g_mean",
    "sensitivity",
    "specificity",
    "auc",
)
_COLUMNS_OF_MANY = ("model", "macro_recall", "mean_macro_recall", "lowest_macro_recall", "f1", "g_mean")


@dataclass(frozen=True)
class StreamOptions:
    """What was written on the command line, columns apart."""

    source: str | None
    query: str | None
    target: str | None
    model_names: tuple[str, ...]
    settings: tuple[str, ...]
    window: str | None
    delay: int
    warmup: int
    positive: str | None
    measure_window: int | None
    on_bad_row: str
    seed: int | None
    report: Path | None
    table: Path | None
    save_to: Path | None
    report_every: int | None
    save_every: int | None
    as_json: bool

    @property
    def files(self) -> dict[str, Path]:
        """What is to be written, and where."""
        named = {"report": self.report, "table": self.table, "save": self.save_to}
        return {name: path for name, path in named.items() if path is not None}


@click.command("stream")
@click.argument("source", required=False)
@query_option
@click.option("--target", metavar="COL", help="Column of the labels.")
@model_options(multiple=True)
@click.option(
    "--window", metavar="N|30d", help="Models forget what is older: so many rows, or 30d, 12h, 90m."
)
@count_option("--delay", "Labels arrive N rows late.", least=0, default=0)
@count_option("--warmup", "Learn N rows before testing.", least=0, default=0)
@positive_option
@measure_window_option("; 1000, for the built-in stream 2000")
@tested_column_options
@click.option(
    "--on-bad-row",
    type=click.Choice(("stop", "skip")),
    default="stop",
    show_default=True,
    help="A row that cannot be used ends the run, with its place, or is left out and listed.",
)
@count_option(
    "--seed",
    "For the models, the samples and the built-in stream; 0 by default, so that runs can be repeated.",
    least=0,
)
@report_option
@click.option("--table", type=OUT_FILE, metavar="FILE.csv", help="Write the measures over time.")
@click.option(
    "-o", "--save", "save_to", type=OUT_FILE, metavar="FILE", help="Save the model; of several, the first."
)
@count_option("--report-every", "Write the report anew after every N rows.")
@count_option("--save-every", "Save the model anew after every N rows.")
@json_option
@gathered(StreamOptions, "options")
def stream_command(options: StreamOptions, columns: ColumnOptions) -> None:
    """Learn from SOURCE row by row, testing every row before it is learned.

    SOURCE is a CSV or TSV file, JSON lines (all also .gz), Parquet or Arrow, - for standard input, or a table
    in a database such as duckdb:///shop.db?table=payments.
    Without SOURCE a built-in stream with a moving imbalance and one drift is used. A live feed, such as
    `tail -f log.csv | steelyard stream -`, is answered within a second, full chunk or not.

    What was learned and measured before an error or Ctrl-C is reported; the exit code tells (1, 130).
    """
    _check(options)
    models = _models(options)
    if options.save_to is not None:
        name, first = next(iter(models.items()))
        check_can_be_saved(first, name)
    stream = _stream(options, columns)
    outputs = _Outputs(stream, options, columns, command_line(click.get_current_context()))
    evaluator, error, stopped = _run(stream, models, options, outputs)
    if error is not None and not evaluator.n_learned:
        raise error
    ended = error.summary if error is not None else "It was stopped by hand." if stopped else None
    outputs.finish(evaluator, ended)
    _tell_bad_rows(stream)
    if error is not None:
        raise SteelyardError(
            f"{error.summary} What came before, {evaluator.n_learned:,} rows, was learned and reported.",
            hint=error.hint,
        )
    if stopped:
        talk(f"stopped after {evaluator.n_rows:,} rows")
        raise click.exceptions.Exit(130)


def _check(options: StreamOptions) -> None:
    if options.source is not None and options.target is None:
        raise click.UsageError("with a SOURCE, --target must name the column of the labels.")
    if options.source is None and options.query is not None:
        raise click.UsageError("--query needs a SOURCE, the address of the database.")
    if options.source is None and options.save_to is not None:
        raise click.UsageError("--save needs a SOURCE: the built-in stream has no columns to remember.")
    for every, name in ((options.report_every, "report"), (options.save_every, "save")):
        if every is not None and name not in options.files:
            raise click.UsageError(f"--{name}-every needs --{name}, which says where to.")


def _stream(options: StreamOptions, columns: ColumnOptions) -> RowStream:
    from steelyard.streams import demo_stream

    if options.source is None:
        seed = {} if options.seed is None else {"seed": options.seed}
        chunk = min(columns.chunk, 500)
        return demo_stream(columns.limit or 60_000, chunk=chunk, **seed)
    assert options.target is not None  # as checked
    check_positive(options.source, options.target, options.positive, columns.limit)
    return open_table(
        source_of(options.source, options.query), options.target, columns, on_bad_row=options.on_bad_row
    )


def _models(options: StreamOptions) -> dict[str, Any]:
    settings = parse_settings(options.settings)
    if options.source is None and not options.model_names:
        models = make_models(_DEMO_MODELS, settings, options.seed or 0)
        window: str | None = options.window or _DEMO_WINDOW
        windowed = [name for name, model in models.items() if hasattr(model, "forget") and name != "auto"]
    else:
        models = make_models(options.model_names or ("auto",), settings, options.seed or 0)
        window, windowed = options.window, list(models) if options.window else []
    unable = [name for name in windowed if not hasattr(models[name], "forget")]
    if unable:
        raise ParameterError(f"--window: {unable[0]!r} cannot forget, so it cannot keep a window.")
    if window is None:
        return models
    return {name: _windowed(m, window) if name in windowed else m for name, m in models.items()}


def _windowed(model: Any, window: str) -> Any:
    """A model that remembers no more than the window; one that minds its memory is told."""
    from steelyard.windowing import SlidingWindow

    if "memory" in model.get_params(deep=False):
        return model.set_params(window=window)
    return SlidingWindow(model, window)


def _run(
    stream: RowStream, models: dict[str, Any], options: StreamOptions, outputs: _Outputs
) -> tuple[PrequentialEvaluator, SteelyardError | None, bool]:
    """The race until the end, an error or Ctrl-C."""
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.evaluator import DEFAULT_METRICS
    from steelyard.streams.chunks import small_first

    evaluator = PrequentialEvaluator(
        models,
        window=options.measure_window or (2000 if options.source is None else 1000),
        delay=options.delay,
        warmup=options.warmup,
        metrics=(*DEFAULT_METRICS, "pmauc"),
        positive=options.positive,
        seed=options.seed or 0,
    )
    error: SteelyardError | None = None
    end_feed = getattr(stream, "stop", None) if getattr(stream, "live", False) else None
    with StreamPanel(stream) as panel, StopOnInterrupt(end_feed) as interrupt:

        def after(evaluator: PrequentialEvaluator) -> None:
            panel.update(evaluator)
            outputs.keep_up(evaluator)

        try:
            evaluator.run(interrupt.until_stopped(small_first(stream)), after)
        except SteelyardError as trouble:
            error = trouble
        except KeyboardInterrupt:
            interrupt.stopped = True
        if error is None and not interrupt.stopped:
            error = positive_refusal(evaluator, options.positive)
        panel.update(evaluator, final=True)
    return evaluator, error, interrupt.stopped


class _Outputs:
    """What is printed and written: at the end, and for those who asked also on the way."""

    def __init__(
        self, stream: RowStream, options: StreamOptions, columns: ColumnOptions, command: str
    ) -> None:
        self._stream, self._options, self._columns, self._command = stream, options, columns, command
        self._next = {"report": options.report_every, "save": options.save_every}

    def keep_up(self, evaluator: PrequentialEvaluator) -> None:
        """Write report and model anew where so many rows have come since the last time."""
        for name, every in (("report", self._options.report_every), ("save", self._options.save_every)):
            due = self._next[name]
            if every is not None and due is not None and evaluator.n_rows >= due:
                self._next[name] = (evaluator.n_rows // every + 1) * every
                result = self._result(evaluator)
                self._write_report(result) if name == "report" else self._save(result)

    def finish(self, evaluator: PrequentialEvaluator, ended: str | None) -> None:
        """The summary, and then the files that were asked for: a full disk costs no figures."""
        result = self._result(evaluator)
        result.ended = ended
        if self._options.as_json:
            emit_json(result.as_dict())
        else:
            _print_summary(result)
        self._save(result)
        if self._options.table is not None:
            result.to_csv(self._options.table)
        self._write_report(result)
        for name, path in self._options.files.items():
            tell(f"{name}: {path}")

    def _result(self, evaluator: PrequentialEvaluator) -> PrequentialResult:
        result = evaluator.result(self._stream)
        result.command = self._command
        return result

    def _save(self, result: PrequentialResult) -> None:
        from steelyard.tables import TableModel, TableStream

        if self._options.save_to is None:
            return
        assert isinstance(self._stream, TableStream)
        assert self._options.target is not None
        learner = next(iter(result.models.values()))
        model = TableModel(learner, self._stream.encoder, self._options.target, self._columns.time)
        save_model(model.note("streamed", self._stream.name, result.n_rows), self._options.save_to)

    def _write_report(self, result: PrequentialResult) -> None:
        from steelyard.report import write_report

        if self._options.report is not None:
            write_report(result, self._options.report)


def _tell_bad_rows(stream: RowStream) -> None:
    n_bad: int = getattr(stream, "n_bad_rows", 0)
    noted: list[str] = getattr(stream, "bad_rows", [])
    if n_bad:
        tell("1 row was left out:" if n_bad == 1 else f"{n_bad:,} rows were left out:")
        for message in noted[:20]:
            tell(f"  {message}")
        if n_bad > 20:
            tell(f"  and {n_bad - 20:,} more")


def _print_summary(result: PrequentialResult) -> None:
    columns = _COLUMNS if result.positive is not None else _COLUMNS_OF_MANY
    rate = result.n_rows / max(result.seconds, 1e-9)
    lines = [
        {
            **line,
            "positive": result.positive,
            "rows_per_second": float(round(line["rows_per_second"])),
            "all_rows_per_second": float(round(rate)),
        }
        for line in result.summary()
    ]
    emit_table([*columns, "rows_per_second", "all_rows_per_second"], lines)
    talk(
        f"{result.n_rows:,} rows in {result.seconds:.1f} s: {rate:,.0f} rows/s from the source to the "
        "figures; rows_per_second is each model's own speed"
    )
