"""``steelyard stream``: prequential evaluation of models on a stream."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import click

from steelyard.cli import options as opt
from steelyard.cli import runs
from steelyard.cli.decision import Cost, check_positive, cost_option, positive_error
from steelyard.cli.files import IN_FILE, OUT_FILE, check_can_be_saved, open_source, open_table, save_model
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_json, emit_table, print_message, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import DataError, ParameterError, SteelyardError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from steelyard.cli.live_display import LiveDisplay
    from steelyard.evaluation import PrequentialEvaluator, PrequentialResult
    from steelyard.streams import RowStream
    from steelyard.streams.chunks import Chunk

_MAX_BUILT_IN_CHUNK_ROWS = 500
_MAX_LISTED_BAD_ROWS = 20
_COLUMNS = (
    "model", "positive", "g_mean", "mean_g_mean", "lowest_g_mean", "sensitivity", "specificity", "auc",
    "average_precision", "log_loss", "brier",
)  # fmt: skip
_COLUMNS_OF_MANY = ("model", "macro_recall", "mean_macro_recall", "lowest_macro_recall", "f1", "g_mean")


@dataclass(frozen=True)
class _BuiltInStream:
    """Generated stream with the models that are compared on it by default."""

    make: str  # name of a class or function in steelyard.streams
    n_rows: int
    models: tuple[str, ...]
    settings: Mapping[str, Any]
    budgeted: tuple[str, ...] = ()  # models that get the adaptive threshold of "auto" by a wrapper
    window: str | None = None  # number of rows that models with a sliding window keep
    measure_window: int = 2000


_ALARM_BUDGET = {"alarms": 0.025}  # about 100 alarms per day for 4,000 generated payments per day
_BUILT_IN_PREFIX = "builtin:"
_BUILT_IN = {
    "payments": _BuiltInStream(
        "Payments",
        60_000,
        ("auto", "linear=proximal", "SGD=sklearn:linear_model.SGDClassifier"),
        {"auto.threshold": _ALARM_BUDGET},
        budgeted=("linear", "SGD"),
        measure_window=4000,
    ),
    "gaussians": _BuiltInStream(
        "demo_stream",
        60_000,
        (
            "auto",
            "balanced=proximal",
            "unweighted=proximal-unweighted",
            "SGD=sklearn:linear_model.SGDClassifier",
        ),
        {},
        window="4000",
    ),
}


@dataclass(frozen=True)
class StreamOptions:
    """Options of ``steelyard stream``."""

    source: str | None = opt.argument(required=False)
    query: str | None = opt.query
    target: str | None = opt.target("Label column of SOURCE, or of the file given with --labels.")
    labels: Path | None = opt.option(
        "Table with the labels, joined to the rows by --id.", "FILE", type=IN_FILE
    )
    id_column: str | None = opt.option(
        "Column of SOURCE and --labels that identifies a row.", "COL", names="--id"
    )
    model_names: tuple[str, ...] = opt.model(multiple=True)
    settings: tuple[str, ...] = opt.model_settings
    versus: tuple[str, ...] = opt.option(
        "Compare the models with this one, for example lightgbm, and print which is better.",
        "[LABEL=]NAME",
        multiple=True,
        shell_complete=opt.complete_models,
    )
    window: str | None = opt.option(
        "Models learn from the last N rows, or the last 30d, 12h or 90m.", "N|30d"
    )
    delay: str | None = opt.option(
        "Delay of the labels: N rows or, with --time, a time span such as 3d, 12h or 90m. Default: 0; for "
        "the built-in payments: 2d.",
        "N|3d",
    )
    warmup: int = opt.count("Learn N rows before the first test.", minimum=0, default=0)
    positive: str | None = opt.positive
    cost: Cost | None = cost_option
    measure_window: int | None = opt.measure_window(" Default: 1000; for the built-in payments: 4000.")
    k: int = opt.k
    columns: ColumnOptions = opt.prequential_columns
    on_bad_row: str = opt.choice(
        "End the run at a row that cannot be parsed, or skip and list such rows.",
        ("stop", "skip"),
        default="stop",
    )
    seed: int | None = opt.count(
        "Random seed of models, samples and the built-in stream. Default: 0.", minimum=0
    )
    shuffle: int | None = runs.shuffle_option
    report: Path | None = opt.report
    table: Path | None = opt.option("Write the measures over time as CSV.", "FILE.csv", type=OUT_FILE)
    save_to: Path | None = opt.option(
        "Save the model (the first of several).", "FILE", type=OUT_FILE, names="-o --save"
    )
    report_every: int | None = opt.count("Rewrite the report after every N rows.")
    save_every: int | None = opt.count("Save the model after every N rows.")
    as_json: bool = opt.as_json

    @property
    def built_in(self) -> _BuiltInStream | None:
        """Generated stream that is used instead of a table, or None if SOURCE is a table."""
        if self.source is None:
            return _BUILT_IN["payments"]
        if not self.source.startswith(_BUILT_IN_PREFIX):
            return None
        name = self.source.removeprefix(_BUILT_IN_PREFIX)
        if name not in _BUILT_IN:
            raise click.UsageError(
                f"there is no built-in stream {name!r}; expected "
                f"{' or '.join(_BUILT_IN_PREFIX + known for known in _BUILT_IN)}."
            )
        return _BUILT_IN[name]

    @property
    def files(self) -> dict[str, Path]:
        """Output files by name."""
        named = {"report": self.report, "table": self.table, "save": self.save_to}
        return {name: path for name, path in named.items() if path is not None}


_stream_options: Any = StreamOptions  # default value that stands for all options of the class


@opt.command("stream")
def stream_command(options: StreamOptions = _stream_options) -> None:
    """Learn from SOURCE row by row, testing every row before it is learned (prequential evaluation).

    SOURCE is a CSV, TSV or JSON-lines file (optionally .gz), a Parquet or Arrow file, - for standard input, a
    database table such as duckdb:///shop.db?table=payments, or a topic of Kafka, NATS, Redis or MQTT such as
    nats://127.0.0.1:4222/payments. Without SOURCE, or with builtin:payments, the rows are generated card
    payments: 1 % are fraud, in patterns that come and go; labels arrive two days late, and models may raise
    100 alarms per day. builtin:gaussians has changing class imbalance and one concept drift. Rows of a live
    feed, such as `tail -f log.csv | steelyard stream -`, are processed within a second even if a chunk is
    incomplete.

    After an error (exit code 1) or Ctrl-C (130) the rows processed so far are still reported.
    """
    columns = options.columns
    _check(options, columns)
    models = _with_prices(_models(options), options.cost)
    if options.save_to is not None:
        name, first = next(iter(models.items()))
        check_can_be_saved(first, name)
    stream = _stream(options, columns)
    outputs = _Outputs(stream, options, columns)
    evaluator, error, stopped = _run(stream, models, options, outputs)
    if error is not None and not evaluator.n_learned:
        raise error
    if error is None and not evaluator.n_rows and evaluator.n_unlabelled:
        raise DataError(
            f"none of the {evaluator.n_unlabelled:,} rows has a label in column {options.target!r}.",
            source=stream.name,
            hint="`steelyard predict` predicts rows with a saved model",
        )
    ended = error.summary if error is not None else "Interrupted with Ctrl-C." if stopped else None
    outputs.finish(evaluator, ended)
    _print_bad_rows(stream)
    if error is not None:
        raise SteelyardError(
            f"{error.summary} The {evaluator.n_learned:,} rows before it were learned and reported.",
            hint=error.hint,
        )
    if stopped:
        print_status(f"stopped after {evaluator.n_rows:,} rows")
        raise click.exceptions.Exit(130)


def _check(options: StreamOptions, columns: ColumnOptions) -> None:
    is_table = options.built_in is None
    if is_table and options.target is None:
        raise click.UsageError("Missing option '--target', the label column of SOURCE.")
    if not is_table and options.query is not None:
        raise click.UsageError("--query needs a SOURCE, the address of a database.")
    if not is_table and options.save_to is not None:
        raise click.UsageError("--save needs a SOURCE; the built-in stream has no table columns.")
    if options.shuffle is not None and (not is_table or columns.time is not None):
        raise click.UsageError("--shuffle needs a SOURCE and cannot be combined with --time.")
    if (options.labels is None) != (options.id_column is None):
        raise click.UsageError("--labels FILE and --id COL must be given together.")
    if options.labels is not None and (not is_table or options.shuffle is not None):
        raise click.UsageError("--labels needs a SOURCE and cannot be combined with --shuffle.")
    has_times = columns.time is not None or options.built_in is _BUILT_IN["payments"]
    if runs.parse_delay(options.delay or "0")[1] is not None and not has_times:
        raise click.UsageError("--delay with a time span needs --time, the column with the time of each row.")
    for every, name in ((options.report_every, "report"), (options.save_every, "save")):
        if every is not None and name not in options.files:
            raise click.UsageError(f"--{name}-every needs --{name} FILE.")


def _stream(options: StreamOptions, columns: ColumnOptions) -> RowStream:
    from steelyard import streams

    built_in = options.built_in
    if built_in is not None:
        seed = {} if options.seed is None else {"seed": options.seed}
        chunk = min(columns.chunk, _MAX_BUILT_IN_CHUNK_ROWS)
        generated: RowStream = getattr(streams, built_in.make)(
            columns.limit or built_in.n_rows, chunk=chunk, **seed
        )
        return generated
    assert options.source is not None  # guaranteed by _check
    assert options.target is not None
    if options.labels is None:
        check_positive(options.source, options.target, options.positive, columns.limit)
    return open_table(
        open_source(options.source, options.query),
        options.target if options.labels is None else None,
        columns,
        on_bad_row=options.on_bad_row,
        unlabelled="keep",
        id_column=options.id_column,
        kept=() if options.cost is None or options.cost.column is None else (options.cost.column,),
    )


def _chunks(stream: RowStream, options: StreamOptions) -> Iterable[Chunk]:
    """Return the labelled chunks of the stream in the order in which they are tested."""
    from steelyard.tables import TableStream

    if not isinstance(stream, TableStream):
        return stream
    if options.labels is None or options.id_column is None or options.target is None:
        return stream if options.shuffle is None else runs.shuffled(stream, options.shuffle)
    labels = runs.read_labels(options.labels, options.id_column, options.target)
    return runs.join_labels(stream, labels, options.id_column, options.target)


def _models(options: StreamOptions) -> dict[str, Any]:
    from steelyard.evaluation.peers import as_stream_learner

    settings = parse_settings(options.settings)
    built_in = options.built_in
    if built_in is not None and not options.model_names and not options.versus:
        models = _built_in_models(built_in, settings, options.seed or 0)
        window = options.window or built_in.window
        windowed = [name for name, model in models.items() if hasattr(model, "forget") and name != "auto"]
    else:
        names = (*(options.model_names or ("auto",)), *options.versus)
        models = make_models(names, settings, options.seed or 0)
        models = {name: as_stream_learner(model) for name, model in models.items()}
        window, windowed = options.window, list(models) if options.window else []
    if window is None:
        return models
    return {name: _windowed(name, m, window) if name in windowed else m for name, m in models.items()}


def _with_prices(models: dict[str, Any], cost: Cost | None) -> dict[str, Any]:
    """Set the costs of --cost as the threshold parameter of the models that support costs."""
    if cost is None:
        return models
    able = [model for model in models.values() if hasattr(model, "takes_cost")]
    if not able:
        raise ParameterError(
            f"--cost: the threshold of {next(iter(models))!r} cannot use costs.", hint="use --model auto"
        )
    for model in able:
        model.set_params(threshold=cost.prices)
    return models


def _built_in_models(stream: _BuiltInStream, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the models that are compared on a built-in stream, all with the same threshold parameter."""
    from steelyard import AdaptiveThresholdClassifier

    models = make_models(stream.models, {**stream.settings, **settings}, seed)
    for name in stream.budgeted:
        models[name] = AdaptiveThresholdClassifier(models[name], threshold=models["auto"].threshold)
    return models


def _windowed(name: str, model: Any, window: str) -> Any:
    """Return the model with a sliding window, set by a parameter of the model or added by a wrapper."""
    from steelyard.base import check_parameters
    from steelyard.windowing import SlidingWindow

    if "window" in model.get_params(deep=False):
        model.set_params(window=int(window) if window.isdigit() else window)
        check_parameters(model)
        return model
    if not hasattr(model, "forget"):
        raise ParameterError(f"--window: {name!r} cannot forget rows.")
    return SlidingWindow(model, window)


def _run(
    stream: RowStream, models: dict[str, Any], options: StreamOptions, outputs: _Outputs
) -> tuple[PrequentialEvaluator, SteelyardError | None, bool]:
    """Run the evaluation until the stream ends, an error occurs or Ctrl-C is pressed."""
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.evaluator import DEFAULT_METRICS
    from steelyard.streams.chunks import small_first

    built_in, cost = options.built_in, options.cost
    delay_rows, delay_seconds = runs.parse_delay(options.delay or "0")
    if options.delay is None:
        delay_seconds = getattr(stream, "label_delay_seconds", None)
    evaluator = PrequentialEvaluator(
        models,
        window=options.measure_window or (built_in.measure_window if built_in is not None else 1000),
        delay=delay_rows,
        warmup=options.warmup,
        metrics=(*DEFAULT_METRICS, "pmauc"),
        k=options.k,
        positive=options.positive,
        seed=options.seed or 0,
        sample_cost=None
        if cost is None or cost.column is None
        else partial(cost.of_rows, feature_names=stream.feature_names or ()),
        explains=options.report is not None,
    )
    error: SteelyardError | None = None
    end_feed = getattr(stream, "stop", None) if getattr(stream, "live", False) else None
    with _live_display(stream) as display, StopOnInterrupt(end_feed) as interrupt:

        def after_chunk(evaluator: PrequentialEvaluator) -> None:
            if display is not None:
                display.update(evaluator)
            outputs.write_due(evaluator)

        chunks = small_first(_chunks(stream, options))
        if delay_seconds is not None:
            chunks = runs.delayed_by_time(chunks, evaluator, delay_seconds)
        try:
            evaluator.run(interrupt.until_stopped(chunks), after_chunk)
        except SteelyardError as raised:
            error = raised
        except KeyboardInterrupt:
            interrupt.stopped = True
        if error is None and not interrupt.stopped:
            error = positive_error(evaluator, options.positive)
        if display is not None:
            display.update(evaluator, final=True)
    return evaluator, error, interrupt.stopped


def _live_display(stream: RowStream) -> AbstractContextManager[LiveDisplay | None]:
    """Return the live display of a run, or None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from steelyard.cli.live_display import LiveDisplay

    return LiveDisplay(stream)


class _Outputs:
    """Writer of results and output files, at the end and after every --report-every or --save-every rows."""

    def __init__(self, stream: RowStream, options: StreamOptions, columns: ColumnOptions) -> None:
        self._stream, self._options, self._columns = stream, options, columns
        self._next_row = {"report": options.report_every or 0, "save": options.save_every or 0}

    def write_due(self, evaluator: PrequentialEvaluator) -> None:
        """Write the report or the model if --report-every or --save-every rows have passed."""
        for name, every, write in (
            ("report", self._options.report_every, self._write_report),
            ("save", self._options.save_every, self._save),
        ):
            if every is not None and evaluator.n_rows >= self._next_row[name]:
                self._next_row[name] = (evaluator.n_rows // every + 1) * every
                write(runs.run_result(evaluator, self._stream))

    def finish(self, evaluator: PrequentialEvaluator, ended: str | None) -> None:
        """Print the summary, then write the files, so that a full disk does not suppress the summary."""
        result = runs.run_result(evaluator, self._stream)
        result.ended = ended
        if self._options.as_json:
            emit_json(result.as_dict())
        else:
            _print_summary(result)
        runs.print_notes(result)
        for name in result.models:
            for rate in result.promises(name):
                if rate.target is not None:
                    print_message(f"{name}: {str(rate)[0].lower()}{str(rate)[1:]}")
        for sentence in runs.versus_sentences(result, len(self._options.versus)):
            print_message(sentence)
        self._save(result)
        if self._options.table is not None:
            result.to_csv(self._options.table)
        self._write_report(result)
        for name, path in self._options.files.items():
            print_message(f"{name}: {path}")

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
        if self._options.report is not None:
            result.report(self._options.report)


def _print_bad_rows(stream: RowStream) -> None:
    n_bad: int = getattr(stream, "n_bad_rows", 0)
    messages: list[str] = getattr(stream, "bad_rows", [])
    if n_bad:
        print_message("skipped 1 row:" if n_bad == 1 else f"skipped {n_bad:,} rows:")
        for message in messages[:_MAX_LISTED_BAD_ROWS]:
            print_message(f"  {message}")
        if n_bad > _MAX_LISTED_BAD_ROWS:
            print_message(f"  and {n_bad - _MAX_LISTED_BAD_ROWS:,} more")


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
    print_status(
        f"{result.n_rows:,} rows in {result.seconds:.1f} s, {rate:,.0f} rows/s in total; rows_per_second "
        "counts only the time of one model"
    )


class StopOnInterrupt:
    """Context manager in which the first Ctrl-C ends :meth:`until_stopped` and the second Ctrl-C raises.

    ``end_feed`` ends a live feed. Rows of a feed cannot be read again, so the rows that have already arrived
    are still returned. Without ``end_feed`` the iteration ends at once.
    """

    def __init__(self, end_feed: Callable[[], None] | None = None) -> None:
        self.stopped = False
        self._end_feed = end_feed
        self._in_next = False  # True while waiting for the next item; Ctrl-C interrupts only this wait
        self._previous_handler: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)  # type: ignore[arg-type]

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.stopped or (self._in_next and self._end_feed is None):
            self.stopped = True
            raise KeyboardInterrupt
        self.stopped = True
        if self._end_feed is not None:
            self._end_feed()

    def until_stopped(self, items: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the items until they end or Ctrl-C is pressed."""
        iterator = iter(items)
        while not self.stopped or self._end_feed is not None:
            self._in_next = True
            try:
                item = next(iterator)
            except (StopIteration, KeyboardInterrupt):
                return
            finally:
                self._in_next = False
            yield item
