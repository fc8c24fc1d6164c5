"""Statistics taken inside a database: the whole numbers of a pass over the same rows, without the rows.

A first look settles what the learner would have settled by the first rows: which columns are numbers, the
categories in the order in which they come, and the grid. Then the engine takes sums of products of whole
numbers (:mod:`steelyard.sql.queries`), which are whole, so that nothing rounds them: what comes back is, bit
for bit, what a learner would hold that had read the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard._validation import MAX_QUANTIZED_FEATURE
from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics, ProximalSVC, Quantizer
from steelyard.sql.arithmetic import ARITHMETICS
from steelyard.sql.queries import Asked, Number, Sums, Writer
from steelyard.tables import TableEncoder
from steelyard.tables.columns import Columns
from steelyard.tables.connections import told
from steelyard.tables.databases import FIRST_ROWS, DatabaseSource, number_of, texts_of
from steelyard.tables.labels import LabelReader

__all__ = [
    "PushdownNotSupported",
    "PushdownPlan",
    "TooFew",
    "answers",
    "execute",
    "look",
    "unsupported_reason",
]

_MANY = 1 << 20  # a row number behind which labels are only counted
_LARGEST_WEIGHT = 2.0**40
_WEIGHT_STEPS = 20  # weights that are not whole are counted in steps of 2**-20
_WHOLE = 2**53  # doubles are counted below this
_MOST_ROW_BITS = 46  # of 62, so that digits have at least eight
_FAR = 240  # powers of two by which engines scale values and neither lose nor refuse any
_MOST_LOOKS = 8  # at the grid, which becomes finer by each


class PushdownNotSupported(DataError):  # noqa: N818  a state of the data, and no mistake of whoever asks
    """What cannot be taken by sums in this database; reading the rows can."""


class TooFew(PushdownNotSupported):
    """So few rows that they settle no grid; they are read, whatever way was asked for."""


def unsupported_reason(learner: Any, engine: str | None, missing: str) -> str | None:
    """Why the rows must be read for this learner; None where sums are enough."""
    if type(learner) is not ProximalSVC:
        return f"{type(learner).__name__} does not learn from sums"
    reasons = {
        "the engine behind this connection is not known": engine not in ARITHMETICS,
        "a feature map needs the rows": learner.feature_map is not None,
        'C="auto" puts rows into folds by their values, so it needs the rows': learner.C == "auto",
        "a ledger needs the rows": learner.track_rows,
        'missing="mean" takes the mean of the rows so far, so it needs the rows': missing == "mean",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@dataclass(frozen=True)
class PushdownPlan:
    """All that is to be known before sums are taken.

    Attributes
    ----------
    source : DatabaseSource
        The rows.
    writer : Writer
        Who writes the queries.
    encoder : TableEncoder
        How columns become features, with all categories of these rows.
    grid : Quantizer
        How values are counted.
    numbers : tuple of Number
        The columns of numbers.
    n_rows : int
        How many rows there are.
    weight_bits : int
        How large weights are, in their steps.
    fractions : bool
        Whether some weight is not whole.
    """

    source: DatabaseSource
    writer: Writer
    encoder: TableEncoder
    quantizer: Quantizer
    numbers: tuple[Number, ...]
    n_rows: int
    weight_bits: int
    fractions: bool

    def queries(self) -> list[Sums]:
        """The SELECTs whose answers are the statistics."""
        return self.writer.sums(self.numbers, self.encoder.categorical_, self.n_rows, self.weight_bits)


def look(
    source: DatabaseSource,
    columns: Columns,
    encoder: TableEncoder,
    *,
    weight: str | None = None,
    quantizer: Quantizer | None = None,
    max_classes: int = 500,
    dialect: str | None = None,
    cells: tuple[str, ...] = (),
) -> PushdownPlan:
    """PushdownPlan at the rows as a whole; PushdownNotSupported where sums cannot be taken exactly.

    Parameters
    ----------
    source : DatabaseSource
        The rows.
    columns : Columns
        Which columns are what.
    encoder : TableEncoder
        It stays as it is; :attr:`PushdownPlan.encoder` is a copy that knows these rows too.
    weight : str, optional
        The column of weights.
    grid : Quantizer, optional
        How values are counted; by default as the first rows have it.
    max_classes : int
        How many labels there can be.
    dialect : str, optional
        For which engine queries of sums are written, if not for the one that is asked.
    cells : tuple of str
        Columns whose values cut the rows further, for sums of each.
    """
    names = columns.chosen(source.names, source.place.source, source.index_names)
    encoder, first = _settled(source, columns, names, encoder)
    assert columns.target is not None
    writer = Writer(ARITHMETICS[str(source.connection.engine)], source.query, columns.target, weight)
    statistics = ClassStatistics(max(len(encoder.feature_names), 1), quantizer=quantizer)
    if quantizer is None:
        if len(first) < FIRST_ROWS:
            raise TooFew(f"there are only {len(first)} rows, which are read.", source=source.place.source)
        statistics.add(first, np.zeros(len(first), dtype=int))
    numbers, bounds = _fine_enough(source, writer, encoder, statistics, max_classes)
    _know_categories(source, writer, encoder)
    found = statistics.grow(max(len(encoder.feature_names), 1)).quantizer
    if found.exponents[len(numbers) :].any() or found.origins[len(numbers) :].any():
        raise PushdownNotSupported(
            "categories are counted in steps of 1, which this grid does not have.", source=source.place.source
        )
    numbers = [replace(number, bits=bounds.bits(number)) for number in numbers]
    fractions = weight is not None and bool(bounds["off", weight])
    made = PushdownPlan(
        source,
        _writer_for(source, dialect, columns.target, weight, fractions=fractions),
        encoder,
        found,
        tuple(numbers),
        bounds.n_rows,
        0 if weight is None else bounds.weight_bits(weight, fractions=fractions),
        fractions,
    )
    made.writer.cells = cells
    _check_size(made)
    return made


def _fine_enough(
    source: DatabaseSource,
    writer: Writer,
    encoder: TableEncoder,
    statistics: ClassStatistics,
    max_classes: int,
) -> tuple[list[Number], _Bounds]:
    """The columns of numbers on a grid on which all rows lie, or are rounded, and the bounds of them all."""
    kinds = [_number_kind(source, name) for name in encoder.numeric_]
    for _ in range(_MOST_LOOKS):
        quantizer = statistics.quantizer
        numbers = [
            Number(
                name,
                kind,
                int(quantizer.exponents[k]),
                int(quantizer.origins[k]),
                filled=encoder.missing == "zero",
                rounds=bool(quantizer.rounds[k]),
            )
            for k, (name, kind) in enumerate(zip(encoder.numeric_, kinds, strict=True))
        ]
        _check_steps(numbers, source.place.source)
        bounds = _Bounds.of(source, writer, numbers, encoder.categorical_)
        bounds.check(numbers, encoder, writer.weight, max_classes)
        off = [number.name for number in numbers if bounds.get("off", number.name)]
        if not off:
            return numbers, bounds
        statistics.add(*_off_rows(source, writer, numbers, off, statistics.n_features))
    raise PushdownNotSupported(f"columns {off} become finer again and again.", source=source.place.source)


def _check_steps(numbers: Sequence[Number], source: str) -> None:
    far = [number for number in numbers if abs(number.exponent) > _FAR]
    if far:
        raise PushdownNotSupported(
            f"column {far[0].name!r} is counted in steps of 2**{far[0].exponent}; databases count in steps "
            f"from 2**-{_FAR} to 2**{_FAR}.",
            source=source,
            hint='how="auto" reads the rows',
        )


def _writer_for(
    source: DatabaseSource, dialect: str | None, target: str, weight: str | None, *, fractions: bool
) -> Writer:
    arithmetic = ARITHMETICS[dialect or str(source.connection.engine)]
    writer = Writer(arithmetic, source.given(arithmetic.dialect), target, weight)
    if fractions:
        writer.weight_exponent = -_WEIGHT_STEPS
    return writer


def _settled(
    source: DatabaseSource, columns: Columns, names: list[str], encoder: TableEncoder
) -> tuple[TableEncoder, Any]:
    """The encoder after the first rows, and these."""
    encoder = deepcopy(encoder)
    kinds = source.kinds(columns, names)
    parts = []
    with closing(source.batches(names, kinds, FIRST_ROWS)) as batches:
        for batch in batches:
            if "columns_" not in vars(encoder):
                encoder.settle(batch, names, columns.categorical)
            parts.append(encoder.encode(batch, source.place, 0, learn=True)[0])
    if not parts:
        raise DataError("there are no rows.", source=source.place.source)
    return encoder, parts[0] if len(parts) == 1 else _stacked(parts)


def _stacked(parts: list[Any]) -> Any:
    width = parts[-1].shape[1]
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def _number_kind(source: DatabaseSource, name: str) -> str:
    kind = source.declared[name]
    if kind in ("moment", "text") and source.connection.engine != "sqlite":
        raise PushdownNotSupported(
            f"column {name!r} is of a kind ({kind}) that is read row by row.", source=source.place.source
        )
    return kind if kind in ("whole", "decimal", "truth") else "double"


def answers(source: DatabaseSource, text: str) -> Iterator[tuple[Any, ...]]:
    """The rows that the database answers to a query of ours over the rows of the source."""
    connection = source.connection
    if source.parameters:  # signs that mean something to the driver may stand in names of columns
        head, _, ours = text.partition(source.query)
        text = connection.escaped(head) + source.query + connection.escaped(ours)
    try:
        yield from connection.run(text, source.parameters).fetchall()
    except Exception as error:
        raise told(error, source.place.source) from error


class _Bounds:
    """What a first look at all rows told."""

    def __init__(self, answers: Mapping[Asked, Any], source: str) -> None:
        self._answers, self._source = answers, source

    @classmethod
    def of(
        cls, source: DatabaseSource, writer: Writer, numbers: Sequence[Number], categories: Sequence[str]
    ) -> _Bounds:
        """Ask the database."""
        text, asked = writer.bounds(numbers, categories)
        return cls(dict(zip(asked, next(answers(source, text)), strict=True)), source.place.source)

    def __getitem__(self, asked: Asked) -> Any:
        return self._answers[asked]

    def get(self, what: str, name: str) -> int:
        """A number of rows; 0 where it was not asked for."""
        return int(self._answers.get((what, name)) or 0)

    @property
    def n_rows(self) -> int:
        """All of them."""
        return int(self["rows", None])

    def check(
        self, numbers: Sequence[Number], encoder: TableEncoder, weight: str | None, max_classes: int
    ) -> None:
        """Refuse, with the names of columns, what a learner would refuse row by row."""
        self._check_labels(max_classes)
        for number in numbers:
            self._check_values(number.name)
        if weight is not None:
            self._check_weight(weight)
        gaps = {name: self.n_rows - self["values", name] for name in encoder.columns_}
        lacking = [f"{name!r} ({n:,} rows)" for name, n in gaps.items() if n]
        if lacking and encoder.missing == "refuse":
            raise DataError(
                f"values are missing in {', '.join(lacking[:10])}.",
                source=self._source,
                hint='fill gaps with missing="mean" or missing="zero" (--missing on the command line)',
            )

    def _check_labels(self, max_classes: int) -> None:
        if not self.n_rows:
            raise DataError("there are no rows.", source=self._source)
        if self["labels", None] < self.n_rows:
            n = self.n_rows - self["labels", None]
            raise DataError(f"the label is missing in {n:,} rows.", source=self._source)
        if self["classes", None] > max_classes:
            raise DataError(
                f"there are {self['classes', None]:,} distinct labels; at most {max_classes:,} can be "
                "classes.",
                source=self._source,
                hint="is this the right target? It looks like an identifier or a measurement",
            )

    def _check_values(self, name: str) -> None:
        if n := self.get("strange", name):
            raise DataError(
                f"column {name!r} holds {n:,} values that are no numbers.",
                source=self._source,
                hint="if this is a column of categories, name it so, or leave it out",
            )
        largest = max(map(abs, self._ends(name)))
        if math.isinf(largest):
            raise DataError(
                f"column {name!r} holds an infinite value, which cannot be used.", source=self._source
            )
        if largest > MAX_QUANTIZED_FEATURE:
            raise DataError(
                f"column {name!r} holds values beyond {MAX_QUANTIZED_FEATURE:g}.", source=self._source
            )

    def _check_weight(self, name: str) -> None:
        if self["values", name] < self.n_rows or self.get("strange", name):
            raise DataError(
                f"column {name!r} of weights must have a number in every row.", source=self._source
            )
        least, largest = self._ends(name)
        if least < 0.0 or largest > _LARGEST_WEIGHT:
            raise DataError(f"weights (column {name!r}) must be from 0 to 2**40.", source=self._source)

    def _ends(self, name: str) -> list[float]:
        found = [self[what, name] for what in ("least", "largest")]
        return [0.0 if value is None else float(value) for value in found]

    def bits(self, number: Number) -> int:
        """How many bits the whole numbers of a column have."""
        ends = self._ends(number.name) + [0.0] * number.filled
        whole = [_quanta(end, number.exponent) for end in ends]
        if max(map(abs, whole)) >= _WHOLE:
            raise PushdownNotSupported(
                f"column {number.name!r} has outliers too far away to be counted.", source=self._source
            )
        return max(abs(value - number.origin).bit_length() for value in whole)

    def weight_bits(self, name: str, *, fractions: bool) -> int:
        """The same of weights, in their steps."""
        return math.ceil(self._ends(name)[1] * 2 ** (_WEIGHT_STEPS * fractions)).bit_length()


def _off_rows(
    source: DatabaseSource, writer: Writer, numbers: Sequence[Number], off: Sequence[str], width: int
) -> tuple[Any, Any]:
    """The first rows that are between the quanta: the grid becomes as fine as a learner would make it."""
    rows = list(answers(source, writer.off_grid(numbers, off, FIRST_ROWS)))
    X = np.zeros((len(rows), width))
    X[:, : len(numbers)] = [[0.0 if value is None else float(value) for value in row] for row in rows]
    return X, np.zeros(len(rows), dtype=int)


def _know_categories(source: DatabaseSource, writer: Writer, encoder: TableEncoder) -> None:
    """Give every category of the rows its place, in the order in which they come."""
    new: list[tuple[int, int, str, str]] = []
    known = set(encoder.categories_)
    for order, name in enumerate(encoder.categorical_):
        values = list(answers(source, writer.categories(name, encoder.max_categories)))
        texts = texts_of([value for value, _ in values])
        found = {(name, text): int(first) for text, (_, first) in zip(texts, values, strict=True)}
        n_values = len({*found, *(pair for pair in known if pair[0] == name)})
        if n_values > encoder.max_categories:
            raise DataError(
                f"column {name!r} has more than {encoder.max_categories:,} distinct values, "
                "too many for one feature each.",
                source=source.place.source,
                hint=f"leave the column out: drop={name!r} (--drop {name} on the command line)",
            )
        new += [(first, order, *pair) for pair, first in found.items() if pair not in known]
    encoder.know((name, value) for _, _, name, value in sorted(new))


def _quanta(value: float, exponent: int) -> int:
    """The nearest whole number of quanta, halves upwards."""
    top, bottom = value.as_integer_ratio()
    top, bottom = (top << -exponent, bottom) if exponent < 0 else (top, bottom << exponent)
    return (2 * top + bottom) // (2 * bottom)


def _check_size(made: PushdownPlan) -> None:
    """Refuse sums that would outgrow the engine's numbers, before any is taken."""
    arithmetic, place = made.writer.arithmetic, made.source.place.source
    needed = made.writer.bits_needed(made.numbers, made.n_rows, made.weight_bits)
    if arithmetic.wide is not None and needed > arithmetic.wide_bits:
        raise PushdownNotSupported(
            f"sums of products would take {needed} bits; {arithmetic.dialect} has {arithmetic.wide_bits}.",
            source=place,
        )
    row_bits = made.weight_bits + (0 if arithmetic.sums_widen else made.n_rows.bit_length())
    if arithmetic.wide is None and row_bits > _MOST_ROW_BITS:
        raise PushdownNotSupported(
            f"{made.n_rows:,} rows with such weights leave no room in 62 bits.", source=place
        )


def execute(
    made: PushdownPlan,
    max_classes: int = 500,
    name_of: Callable[[list[str | None], Label], Label] | None = None,
) -> ClassStatistics:
    """The statistics of all rows, taken inside the database.

    Parameters
    ----------
    made : PushdownPlan
        What :func:`look` found, in the same moment of the database.
    max_classes : int
        How many labels there can be.
    name_of : callable, optional
        What to call the rows of a class with certain values of the cells.
    """
    n_cells = len(made.writer.cells)
    width = made.quantizer.n_features
    triangles: dict[Label, list[int]] = {}
    read_label = _LabelsOnce(made, max_classes)
    weighed: int | None = None
    for number, query in enumerate(made.queries()):
        for row in answers(made.source, query.text):
            label = read_label(row[0])
            if name_of is not None:
                label = name_of(texts_of(row[1 : 1 + n_cells]).tolist(), label)
            triangle = triangles.setdefault(label, [0] * ((width + 1) * (width + 2) // 2))
            _add_row(triangle, made.encoder, query, row[1 + n_cells :], first=number == 0)
        if number == 0:
            weighed = sum(triangle[-1] for triangle in triangles.values())
    if made.writer.weight is None and weighed != made.n_rows:
        raise DataError(
            f"the rows changed while they were looked at: {made.n_rows:,} before and {weighed:,} after; "
            "nothing was changed.",
            source=made.source.place.source,
            hint="try again, in a transaction that sees one moment",
        )
    held = {label: triangle for label, triangle in triangles.items() if triangle[-1]}
    return ClassStatistics.from_sums(made.quantizer, held, fractions=made.fractions)


class _LabelsOnce:
    """Labels as rows that are read would have them."""

    def __init__(self, made: PushdownPlan, max_classes: int) -> None:
        target = made.writer.target
        self._reader = LabelReader(target, max_classes)
        self._place = made.source.place
        self._is_text = made.source.declared[target] == "text"
        self._known: dict[Any, Label] = {}

    def __call__(self, value: Any) -> Label:
        key = (type(value), value)
        if key not in self._known:
            is_text = self._is_text or isinstance(value, str)
            values = texts_of([value]) if is_text else np.array([number_of(value)])
            self._known[key] = self._reader.read(values, self._place, _MANY).tolist()[0]
        return self._known[key]


def _add_row(
    triangle: list[int], encoder: TableEncoder, query: Sums, row: tuple[Any, ...], *, first: bool
) -> None:
    """Add one group of one query to the sums of its class."""
    width, n_numbers = len(encoder.feature_names), len(encoder.numeric_)
    n_keys = len(query.keys)
    values = [int(value or 0) for value in row[n_keys:]]
    count = values[0]
    if not n_keys:
        if first:
            triangle[_place(width, width)] += count
        for aggregate, value in zip(query.aggregates, values[1:], strict=True):
            ends = aggregate.places if len(aggregate.places) == 2 else (*aggregate.places, width)
            triangle[_place(*ends)] += value << aggregate.shift
        return
    texts = texts_of(row[:n_keys])
    places = [
        None if text is None else n_numbers + encoder.place_of(name, text)
        for name, text in zip(query.keys, texts, strict=True)
    ]
    if None in places:  # a missing category is none
        return
    triangle[_place(*places) if n_keys == 2 else _place(width, places[0])] += count
    if n_keys == 1:
        triangle[_place(places[0], places[0])] += count
        for aggregate, value in zip(query.aggregates, values[1:], strict=True):
            triangle[_place(places[0], aggregate.places[0])] += value << aggregate.shift


def _place(one: Any, other: Any) -> int:
    row, column = max(one, other), min(one, other)
    return int(row * (row + 1) // 2 + column)
