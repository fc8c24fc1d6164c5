"""Push-down: computation of the statistics of a ProximalSVC inside a database.

A plan contains what an estimator learns from its first rows: columns, categories and quantizer. The engine
then computes sums of integers, so the statistics are bit-identical to those of an estimator that has read the
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, ProximalSVC, Quantizer
from steelyard.proximal.quantizer import LARGEST_VALUE, WEIGHT_FRACTION_BITS
from steelyard.proximal.serialization import triangle_size
from steelyard.sql.queries import ARITHMETICS, Arithmetic, BoundKey, Number, Sums, Writer, with_rows
from steelyard.streams.chunks import padded
from steelyard.tables import TableEncoder
from steelyard.tables.columns import Columns
from steelyard.tables.connections import database_error
from steelyard.tables.databases import FIRST_ROWS, DatabaseSource, number_of, texts_of
from steelyard.tables.encoding import MAX_CLASSES, LabelReader

# Row number passed to LabelReader. For the first rows of a stream LabelReader also checks that labels repeat.
_LABEL_ROW = 1 << 20
_MAX_WEIGHT = 2.0**40
_MAX_STEPS = 2**53  # doubles represent integers below this exactly
# Maximum number of bits of the row count and the weights together.
# A 62-bit sum then leaves at least eight bits for each digit of a value.
_MAX_ROW_BITS = 46
# Limit of exponents of powers of two by which engines scale values without overflow or underflow.
_MAX_EXPONENT = 240
_MAX_REFINEMENTS = 8  # maximum number of times that the quantizer is refined


class PushdownNotSupported(DataError):  # noqa: N818  not an error with how="auto"
    """Push-down is not possible for this database, estimator or data. The rows can be streamed instead."""


class TooFewRows(PushdownNotSupported):
    """Error: too few rows to fit a quantizer. The caller then streams the rows, even with how="pushed"."""


def unsupported_reason(estimator: Any, engine: str | None, missing: str) -> str | None:
    """Return the reason why push-down is not possible for an estimator, or None if it is."""
    if type(estimator) is not ProximalSVC:
        return f"{type(estimator).__name__} cannot be fitted from sums"
    reasons = {
        "the engine of this connection is unknown": engine not in ARITHMETICS,
        "a feature map needs the rows": estimator.feature_map is not None,
        'C="auto" assigns rows to folds by their values, so it needs the rows': estimator.C == "auto",
        "track_rows=True needs the rows": estimator.track_rows,
        'missing="mean" uses a running mean, so it needs the rows': missing == "mean",
        'missing="indicator" uses the median of the first rows, so it needs the rows': missing == "indicator",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@dataclass(frozen=True)
class PushdownPlan:
    """Push-down plan: the queries, and what is needed to read their results."""

    source: DatabaseSource  # the rows
    writer: Writer
    encoder: TableEncoder  # encoder of the columns, with all categories of the rows of ``source``
    quantizer: Quantizer
    n_rows: int
    queries: list[Sums]  # SELECT statements that compute the statistics


def plan_pushdown(
    source: DatabaseSource,
    columns: Columns,
    encoder: TableEncoder,
    *,
    weight: str | None = None,
    quantizer: Quantizer | None = None,
    dialect: str | None = None,
    cells: tuple[str, ...] = (),
) -> PushdownPlan:
    """Return the push-down plan for database rows; raise PushdownNotSupported if sums would not be exact.

    ``encoder`` is not modified: :attr:`PushdownPlan.encoder` is a copy that also knows the categories of
    these rows. By default the first rows determine the quantizer, and the queries are written for the engine
    of the source. With ``cells``, sums are computed for each combination of values of these columns.
    """
    names = columns.chosen(source.names, source.place.source, source.index_names)
    encoder, first = _encode_first_rows(source, columns, names, encoder)
    assert columns.target is not None
    writer = Writer(ARITHMETICS[str(source.connection.engine)], columns.target, weight)
    statistics = ClassStatistics(max(len(encoder.feature_names), 1), quantizer=quantizer)
    if quantizer is None:
        if len(first) < FIRST_ROWS:
            raise TooFewRows(
                f"there are only {len(first)} rows, so they are streamed.", source=source.place.source
            )
        statistics.add(first, np.zeros(len(first), dtype=int))
    numbers, bounds = _refine(source, writer, encoder, statistics)
    _learn_categories(source, writer, encoder)
    found = statistics.grow(max(len(encoder.feature_names), 1)).quantizer
    if found.exponents[len(numbers) :].any() or found.origins[len(numbers) :].any():
        raise PushdownNotSupported(
            "one-hot features need steps of 1, but the quantizer has other steps.", source=source.place.source
        )
    numbers = [replace(number, bits=bounds.bits(number)) for number in numbers]
    fractions = weight is not None and bool(bounds["off", weight])
    arithmetic = ARITHMETICS[dialect or str(source.connection.engine)]
    writer = Writer(arithmetic, columns.target, weight, cells, -WEIGHT_FRACTION_BITS if fractions else 0)
    # Number of bits of the largest weight, in units of the step to which weights are rounded.
    weight_bits = 0 if weight is None else bounds.weight_bits(weight, fractions=fractions)
    _check_size(writer.arithmetic, numbers, bounds.n_rows, weight_bits, source.place.source)
    queries = writer.sums(numbers, encoder.categorical_, bounds.n_rows, weight_bits)
    return PushdownPlan(source, writer, encoder, found, bounds.n_rows, queries)


def _refine(
    source: DatabaseSource, writer: Writer, encoder: TableEncoder, statistics: ClassStatistics
) -> tuple[list[Number], _Bounds]:
    """Refine the quantizer until no exact value is between steps; return numeric columns and their bounds."""
    kinds = [source.declared[name] for name in encoder.numeric_]
    for name, kind in zip(encoder.numeric_, kinds, strict=True):
        if kind in ("moment", "text") and source.connection.engine != "sqlite":
            raise PushdownNotSupported(
                f"column {name!r} has the type {kind}, which push-down does not support.",
                source=source.place.source,
            )
    for _ in range(_MAX_REFINEMENTS):
        quantizer = statistics.quantizer
        numbers = [
            Number(
                name,
                kind if kind in ("whole", "decimal", "truth") else "double",
                int(quantizer.exponents[k]),
                int(quantizer.origins[k]),
                filled=encoder.missing == "zero",
                rounds=bool(quantizer.rounds[k]),
            )
            for k, (name, kind) in enumerate(zip(encoder.numeric_, kinds, strict=True))
        ]
        invalid = [number for number in numbers if abs(number.exponent) > _MAX_EXPONENT]
        if invalid:
            raise PushdownNotSupported(
                f"column {invalid[0].name!r} has steps of 2**{invalid[0].exponent}; push-down supports steps "
                f"from 2**-{_MAX_EXPONENT} to 2**{_MAX_EXPONENT}.",
                source=source.place.source,
                hint='use how="auto", which reads the rows',
            )
        bounds = _Bounds(source, writer, numbers, encoder.categorical_)
        bounds.check(numbers, encoder, writer.weight)
        off = [number.name for number in numbers if bounds.get("off", number.name)]
        if not off:
            return numbers, bounds
        rows = [*run_query(source, writer.rows_off_step(numbers, off, FIRST_ROWS))]
        X = np.zeros((len(rows), statistics.n_features))
        X[:, : len(numbers)] = [[0.0 if value is None else float(value) for value in row] for row in rows]
        statistics.add(X, np.zeros(len(rows), dtype=int))
    raise PushdownNotSupported(
        f"columns {off} need finer steps after {_MAX_REFINEMENTS} refinements.", source=source.place.source
    )


def _encode_first_rows(
    source: DatabaseSource, columns: Columns, names: list[str], encoder: TableEncoder
) -> tuple[TableEncoder, Any]:
    """Fit a copy of the encoder to the first rows; return this copy and the encoded rows."""
    encoder = encoder.copy()
    if encoder.is_fitted and len(encoder.numbers) > len(encoder.numeric_):
        raise PushdownNotSupported(
            f"column {encoder.numbers[-1]!r} was added to the model later, which push-down does not support.",
            source=source.place.source,
        )
    kinds = source.kinds(columns, names)
    parts = []
    with closing(source.batches(names, kinds, FIRST_ROWS)) as batches:
        for batch in batches:
            if not encoder.is_fitted:
                encoder.fit_columns(batch, names, columns.categorical)
            parts.append(encoder.encode(batch, source.place, 0, learn=True)[0])
    if not parts:
        raise DataError("there are no rows.", source=source.place.source)
    return encoder, np.concatenate([padded(part, parts[-1].shape[1]) for part in parts])


def run_query(source: DatabaseSource, text: str) -> Iterator[tuple[Any, ...]]:
    """Yield the result rows of a query over the rows of the source."""
    connection = source.connection
    if source.parameters:  # column names may contain placeholder characters of the driver
        text = connection.escaped(text)
    text = with_rows(source.query, text)
    try:
        yield from connection.run(text, source.parameters).fetchall()
    except Exception as error:
        raise database_error(error, source.place.source) from error


class _Bounds:
    """Counts and value ranges of the columns."""

    def __init__(
        self, source: DatabaseSource, writer: Writer, numbers: Sequence[Number], categories: Sequence[str]
    ) -> None:
        text, keys = writer.bounds(numbers, categories)
        self._values: dict[BoundKey, Any] = dict(zip(keys, next(run_query(source, text)), strict=True))
        self._source = source.place.source

    def __getitem__(self, key: BoundKey) -> Any:
        return self._values[key]

    def get(self, bound: str, name: str) -> int:
        """Return one of the queried counts, or 0 if it was not queried."""
        return int(self._values.get((bound, name)) or 0)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self["rows", None])

    def check(self, numbers: Sequence[Number], encoder: TableEncoder, weight: str | None) -> None:
        """Raise DataError, with column names, for values that an estimator would reject."""
        n_rows, n_classes = self.n_rows, self["classes", None]
        if not n_rows:
            raise self._error("there are no rows.")
        if n_unlabelled := n_rows - self["labels", None]:
            raise self._error(f"the label is missing in {n_unlabelled:,} rows.")
        if n_classes > MAX_CLASSES:
            raise self._error(
                f"there are {n_classes:,} distinct labels; at most {MAX_CLASSES:,} can be classes.",
                "is this the right target? It looks like an identifier or a measurement",
            )
        for number in numbers:
            self._check_values(number.name)
        if weight is not None:
            if self["values", weight] < n_rows or self.get("strange", weight):
                raise self._error(f"the column of weights, {weight!r}, must have a number in every row.")
            smallest, largest = self._range(weight)
            if smallest < 0.0 or largest > _MAX_WEIGHT:
                raise self._error(f"weights (column {weight!r}) must be from 0 to 2**40.")
        n_missing = {name: n_rows - self["values", name] for name in encoder.columns_}
        incomplete = [f"{name!r} ({n:,} rows)" for name, n in n_missing.items() if n]
        if incomplete and encoder.missing == "refuse":
            raise self._error(
                f"values are missing in {', '.join(incomplete[:10])}.",
                'fill them by missing="mean" or missing="zero" (--missing on the command line)',
            )

    def _check_values(self, name: str) -> None:
        if n := self.get("strange", name):
            raise self._error(
                f"column {name!r} contains {n:,} values that are not numbers.",
                "declare the column as categorical, or leave it out",
            )
        largest = max(map(abs, self._range(name)))
        if math.isinf(largest):
            raise self._error(f"column {name!r} contains an infinite value, which cannot be used.")
        if largest > LARGEST_VALUE:
            raise self._error(f"column {name!r} contains values beyond {LARGEST_VALUE:g}.")

    def _error(self, message: str, hint: str | None = None) -> DataError:
        return DataError(message, source=self._source, hint=hint)

    def _range(self, name: str) -> list[float]:
        found = [self[bound, name] for bound in ("least", "largest")]
        return [0.0 if value is None else float(value) for value in found]

    def bits(self, number: Number) -> int:
        """Return the number of bits of the quantized values of a column."""
        ends = map(Fraction, self._range(number.name) + [0.0] * number.filled)
        step = Fraction(2) ** number.exponent
        steps = [math.floor(end / step + Fraction(1, 2)) for end in ends]  # ties are rounded up
        if max(map(abs, steps)) >= _MAX_STEPS:
            raise PushdownNotSupported(
                f"column {number.name!r} has outliers beyond 2**53 steps.", source=self._source
            )
        return max(abs(value - number.origin).bit_length() for value in steps)

    def weight_bits(self, name: str, *, fractions: bool) -> int:
        """Return the bit length of the largest weight, with ``fractions`` in steps of weights."""
        return math.ceil(self._range(name)[1] * 2 ** (WEIGHT_FRACTION_BITS * fractions)).bit_length()


def _learn_categories(source: DatabaseSource, writer: Writer, encoder: TableEncoder) -> None:
    """Add the categories of the rows to the encoder in order of appearance."""
    new: list[tuple[int, int, str, str]] = []
    known = set(encoder.categories_)
    for order, name in enumerate(encoder.categorical_):
        values = list(run_query(source, writer.categories(name, encoder.max_categories)))
        texts = texts_of([value for value, _ in values])
        found = {(name, text): int(first) for text, (_, first) in zip(texts, values, strict=True)}
        n_values = len({*found, *(pair for pair in known if pair[0] == name)})
        encoder.check_few_categories(name, n_values, source.place.source)
        new += [(first, order, *pair) for pair, first in found.items() if pair not in known]
    encoder.add_categories((name, value) for _, _, name, value in sorted(new))


def _check_size(
    arithmetic: Arithmetic, numbers: Sequence[Number], n_rows: int, weight_bits: int, source: str
) -> None:
    """Raise an error if sums could overflow the integers of the engine."""
    needed = 2 * max((number.bits for number in numbers), default=0) + n_rows.bit_length() + weight_bits
    if arithmetic.wide is not None and needed > arithmetic.wide_bits:
        raise PushdownNotSupported(
            f"sums of products would take {needed} bits; {arithmetic.dialect} has {arithmetic.wide_bits}.",
            source=source,
        )
    row_bits = weight_bits + (0 if arithmetic.sums_widen else n_rows.bit_length())
    if arithmetic.wide is None and row_bits > _MAX_ROW_BITS:
        raise PushdownNotSupported(
            f"sums over {n_rows:,} rows with these weights exceed 62 bits.", source=source
        )


def execute(
    plan: PushdownPlan, name_of: Callable[[list[str | None], Label], Label] | None = None
) -> ClassStatistics:
    """Return the statistics of all rows, computed inside the database.

    The plan must have been made in the same database snapshot. ``name_of`` returns the key of a class in a
    cell of the plan, which is a combination of values of the columns ``plan.writer.cells``.
    """
    n_cells = len(plan.writer.cells)
    width = plan.quantizer.n_features
    triangles: dict[Label, list[int]] = {}
    label_of = _labels_of(plan)
    total_weight: int | None = None
    for number, query in enumerate(plan.queries):
        for row in run_query(plan.source, query.text):
            label = label_of(row[0])
            if name_of is not None:
                label = name_of(texts_of(row[1 : 1 + n_cells]).tolist(), label)
            triangle = triangles.setdefault(label, [0] * triangle_size(width))
            _add_row(triangle, plan.encoder, query, row[1 + n_cells :], first=number == 0)
        if number == 0:
            total_weight = sum(triangle[-1] for triangle in triangles.values())
    if plan.writer.weight is None and total_weight != plan.n_rows:
        raise DataError(
            f"the rows changed between two queries: {plan.n_rows:,} before and {total_weight:,} after; "
            "nothing was changed.",
            source=plan.source.place.source,
            hint="repeat the call in a transaction with snapshot isolation",
        )
    nonempty = {label: triangle for label, triangle in triangles.items() if triangle[-1]}
    return ClassStatistics.from_sums(plan.quantizer, nonempty, fractions=plan.writer.weight_exponent < 0)


def _labels_of(plan: PushdownPlan) -> Callable[[Any], Label]:
    """Return a function that converts a label of the database to the label of a streamed row."""
    target, place = plan.writer.target, plan.source.place
    reader = LabelReader(target)
    known: dict[Any, Label] = {}

    def label_of(value: Any) -> Label:
        key = (type(value), value)
        if key not in known:
            is_text = plan.source.declared[target] == "text" or isinstance(value, str)
            values = texts_of([value]) if is_text else np.array([number_of(value)])
            known[key] = reader.read(values, place, _LABEL_ROW).tolist()[0]
        return known[key]

    return label_of


def _add_row(
    triangle: list[int], encoder: TableEncoder, query: Sums, row: tuple[Any, ...], *, first: bool
) -> None:
    """Add a result row to the sums of its class. The ``first`` query adds the weight, which all return."""
    width, n_numeric, n_keys = len(encoder.feature_names), len(encoder.numeric_), len(query.keys)
    keys: list[Any] = [
        None if text is None else n_numeric + encoder.index_of(name, text)
        for name, text in zip(query.keys, texts_of(row[:n_keys]), strict=True)
    ]
    if None in keys:  # a missing category has no feature
        return
    count, *sums = [int(value or 0) for value in row[n_keys:]]
    ends_of_count: list[tuple[int, ...]] = [(width, width)] * first if not keys else [(keys[0], keys[-1])]
    if n_keys == 1:
        ends_of_count.append((width, keys[0]))
    for ends in ends_of_count:
        triangle[_triangle_index(*ends)] += count
    for aggregate, value in zip(query.aggregates, sums, strict=True):
        ends = (*keys, *aggregate.indices, width)[
            :2
        ]  # the last column, of ones, is the factor of single sums
        triangle[_triangle_index(*ends)] += value << aggregate.shift


def _triangle_index(one: Any, other: Any) -> int:
    row, column = max(one, other), min(one, other)
    return int(row * (row + 1) // 2 + column)
