"""SELECT statements that compute sums of products inside a database, generated with SQLGlot.

Every query reads the rows of the caller once, as ``steelyard_rows``. Values are quantized first, so sums of
products are integers and the engine adds them without rounding:

1. ``scaled`` contains every numeric column divided by its step. The step is a power of two, so the quotient
   is exact.
2. ``counted`` contains the nearest integer (ties up) minus the origin, as the quantizer computes it.
3. ``digits`` contains these integers split into digits whose products fit into 64 bits, for engines without
   fast wider integers.

SQLGlot quotes column names and creates number literals. Data values are never part of the text of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, combinations_with_replacement, product
from operator import mul
from typing import Any

from steelyard.sql.arithmetic import NARROW_BITS, Arithmetic

_MAX_NAME_BYTES = 40
_MAX_AGGREGATES = 1000  # maximum number of sums in one SELECT; PostgreSQL allows 1,664 columns, SQLite 2,000
ROWS = "steelyard_rows"

BoundKey = tuple[str, str | None]


@dataclass(frozen=True)
class Number:
    """Numeric column with its quantization."""

    name: str
    kind: str  # type of its values: "whole", "double", "decimal" or "truth"
    exponent: int = 0  # exponent of the step, which is a power of two
    origin: int = 0  # offset that is subtracted, in units of the step
    bits: int = 0  # number of bits of the largest quantized value
    filled: bool = False  # whether missing values are replaced by zero
    # Whether values are rounded to multiples of the step. Otherwise the quantizer must be refined.
    rounds: bool = False


@dataclass(frozen=True)
class Piece:
    """Digit of the values of a quantized column: a column of the subquery ``counted`` or ``digits``."""

    name: str
    of: str  # name of the quantized column
    shift: int  # position of the lowest bit
    bits: int  # number of bits
    last: bool = True  # whether this is the highest digit, which has the sign

    @property
    def is_whole(self) -> bool:
        """Whether this digit is the complete number."""
        return self.last and not self.shift


@dataclass(frozen=True)
class Aggregate:
    """Sum of one digit, or of the product of two digits. ``indices`` are the indices of their columns."""

    indices: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def shift(self) -> int:
        """Number of bits by which the sum must be shifted to the left."""
        return sum(piece.shift for piece in self.pieces)


@dataclass(frozen=True)
class Sums:
    """SELECT statement with its GROUP BY columns ``keys`` and its sums. The first sum adds the weights."""

    text: str
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = field(default=())


class Writer:
    """Generator of the queries for one engine; ``given`` is a SELECT of the rows in its dialect."""

    cells: tuple[str, ...] = ()  # columns that split the rows of a class into cells

    def __init__(self, arithmetic: Arithmetic, given: str, target: str, weight: str | None = None) -> None:
        from sqlglot import exp

        self._exp: Any = exp
        self.arithmetic, self.given = arithmetic, given
        self.target, self.weight = target, weight

    # -- queries for value ranges ------------------------------------------------------------------------

    def bounds(self, numbers: Sequence[Number], categories: Sequence[str]) -> tuple[str, list[BoundKey]]:
        """Return a query for counts and value ranges, which decide whether push-down is possible.

        Returns
        -------
        text : str
            A SELECT with one row.
        keys : list of (str, str or None)
            Meaning of each result column, and the table column it belongs to: number of "rows", "labels" and
            "classes"; number of "values" of a column; the "least" and "largest" number; the number of values
            that are not multiples of the step ("off"), and of values that are not numbers ("strange").
        """
        exp = self._exp
        target = self._column(self.target)
        requested: list[tuple[BoundKey, Any]] = [
            (("rows", None), exp.Count(this=exp.Star())),
            (("labels", None), exp.Count(this=target)),
            (("classes", None), exp.Count(this=exp.Distinct(expressions=[target]))),
        ]
        requested += [(("values", name), exp.Count(this=self._column(name))) for name in categories]
        weights = [] if self.weight is None else [Number(self.weight, "double")]
        for number in (*weights, *numbers):
            requested += [((bound, number.name), aggregate) for bound, aggregate in self._bounds_of(number)]
        query = exp.select(*(aggregate for _, aggregate in requested)).from_("plain")
        query = query.with_("plain", as_=self._plain((*weights, *numbers), categories))
        return self._text(query), [key for key, _ in requested]

    def _plain(self, numbers: Sequence[Number], others: Sequence[str]) -> Any:
        """Return a SELECT of numeric columns as doubles, with NULL in place of NaN."""
        columns = [self._named(self._double(number), number.name) for number in numbers]
        chosen = self._exp.select(*map(self._column, (self.target, *others)), *columns).from_(ROWS)
        return self._computed_once(chosen)

    def _bounds_of(self, number: Number) -> list[tuple[str, Any]]:
        exp = self._exp
        column = self._column(number.name)
        aggregate = [
            ("values", exp.Count(this=column)),
            ("least", exp.Min(this=column)),
            ("largest", exp.Max(this=column)),
        ]
        if not number.rounds:
            aggregate.append(("off", exp.Sum(this=self._when(self._off(number), 1, 0))))
        if self.arithmetic.changing:
            names = [exp.Literal.string(name) for name in ("integer", "real", "null")]
            plain = exp.In(this=exp.Anonymous(this="TYPEOF", expressions=[column]), expressions=names)
            aggregate.append(("strange", exp.Sum(this=self._when(plain, 0, 1))))
        return aggregate

    def _off(self, number: Number) -> Any:
        scaled = self._times_power(self._column(number.name), -number.exponent)
        return self._exp.NEQ(this=scaled, expression=self._floor(scaled))

    def rows_off_step(self, numbers: Sequence[Number], off: Sequence[str], limit: int) -> str:
        """Return a query for the first ``limit`` rows that the quantizer cannot represent exactly.

        In such a row a value of a column of ``off`` is not a multiple of the quantization step of the column.
        """
        exp = self._exp
        query = exp.select(*(self._column(number.name) for number in numbers)).from_("plain")
        query = query.with_("plain", as_=self._plain(numbers, ()))
        conditions = [self._off(number) for number in numbers if number.name in off]
        return self._text(query.where(exp.or_(*conditions)).limit(limit))

    def categories(self, name: str, max_values: int) -> str:
        """Return a query for the categories in order of appearance, limited to ``max_values + 1`` rows."""
        exp = self._exp
        column = self._column(name)
        number = exp.Window(this=exp.RowNumber())
        numbered = exp.select(exp.alias_(column, "value"), exp.alias_(number, "place")).from_(ROWS)
        first = exp.alias_(exp.Min(this=exp.column("place")), "first")
        chosen = exp.select("value", first).from_(numbered.subquery("numbered"))
        chosen = chosen.where(exp.Not(this=exp.Is(this=exp.column("value"), expression=exp.Null())))
        return self._text(chosen.group_by("value").order_by("first").limit(max_values + 1))

    # -- queries for sums --------------------------------------------------------------------------------

    def sums(
        self, numbers: Sequence[Number], categories: Sequence[str], n_rows: int, weight_bits: int = 0
    ) -> list[Sums]:
        """Return the SELECTs that compute all sums of products per class.

        There is one SELECT for pairs of numeric columns (several if there are very many), one per categorical
        column with the numeric columns, and one per pair of categorical columns.
        """
        row_bits = n_rows.bit_length() + weight_bits
        max_bits = self._product_bits(row_bits, weight_bits)
        left, right = _piece_sizes(numbers, max_bits)
        complete, first, second = (
            [_pieces(number, k, size) for k, number in enumerate(numbers)] for size in (max_bits, left, right)
        )
        singles = [Aggregate((k,), (piece,)) for k, found in enumerate(second) for piece in found]
        pairs = []
        for j, k in combinations_with_replacement(range(len(numbers)), 2):
            fits = numbers[j].bits + numbers[k].bits <= max_bits
            factors = (complete[j], complete[k]) if fits else (first[j], second[k])
            pairs += [Aggregate((j, k), (one, other)) for one, other in product(*factors)]
        aggregates = [*singles, *pairs]
        blocks = [
            aggregates[begin : begin + _MAX_AGGREGATES]
            for begin in range(0, max(len(aggregates), 1), _MAX_AGGREGATES)
        ]
        selects = [self._select((), block, numbers, row_bits, weight_bits) for block in blocks]
        selects += [self._select((name,), singles, numbers, row_bits, weight_bits) for name in categories]
        selects += [self._select(pair, (), (), row_bits, weight_bits) for pair in combinations(categories, 2)]
        return selects

    def bits_needed(self, numbers: Sequence[Number], n_rows: int, weight_bits: int = 0) -> int:
        """Return the number of bits of the largest possible sum."""
        max_bits = max((number.bits for number in numbers), default=0)
        return 2 * max_bits + n_rows.bit_length() + weight_bits

    def _product_bits(self, row_bits: int, weight_bits: int) -> int:
        """Return the maximum number of bits that a product may have so that no sum overflows."""
        if self.arithmetic.wide is not None:
            return self.arithmetic.wide_bits
        return NARROW_BITS - (weight_bits if self.arithmetic.sums_widen else row_bits)

    def _select(
        self,
        keys: tuple[str, ...],
        aggregates: Sequence[Aggregate],
        numbers: Sequence[Number],
        row_bits: int,
        weight_bits: int,
    ) -> Sums:
        exp = self._exp
        used = {index for aggregate in aggregates for index in aggregate.indices}
        chosen = [number for index, number in enumerate(numbers) if index in used]
        grouped = [self._column(name) for name in (self.target, *self.cells, *keys)]
        counted = exp.Count(this=exp.Star())
        if self.weight is not None:
            counted = exp.Sum(this=self._column(self.weight))
        totals = [self._total(aggregate, row_bits, weight_bits) for aggregate in aggregates]
        stages = self._stages(keys, chosen, aggregates)
        query = exp.select(*grouped, counted, *totals).from_(stages[-1][0] if stages else ROWS)
        for name, stage in stages:
            query = query.with_(name, as_=stage)
        return Sums(self._text(query.group_by(*grouped)), keys, tuple(aggregates))

    def _total(self, aggregate: Aggregate, row_bits: int, weight_bits: int) -> Any:
        """Return the SQL sum of a product in a type that cannot overflow."""
        exp, wide = self._exp, self.arithmetic.wide
        factors = [self._column(piece.name) for piece in aggregate.pieces]
        bits = sum(piece.bits for piece in aggregate.pieces) + weight_bits
        summed = bits + (0 if self.arithmetic.sums_widen else row_bits - weight_bits)
        if wide is not None and max(bits, summed) > NARROW_BITS:
            kind = exp.DataType.build(wide, dialect=self.arithmetic.dialect)
            factors = [exp.Cast(this=factors[0], to=kind), *factors[1:]]
        if self.weight is not None:
            factors.append(self._column(self.weight))
        product = factors[0]
        for factor in factors[1:]:
            product = exp.Mul(this=product, expression=factor)
        return exp.Sum(this=product)

    def _stages(
        self, keys: tuple[str, ...], numbers: Sequence[Number], aggregates: Sequence[Aggregate]
    ) -> list[tuple[str, Any]]:
        """Return the subqueries that convert columns to integers. Each one selects from the previous one."""
        passed = [self._column(name) for name in (self.target, *self.cells, *keys)]
        counted = [*numbers] if self.weight is None else [*numbers, self._weight_number()]
        if not counted:
            return []
        stages = [
            ("scaled", [self._named(self._scaled(number), number.name) for number in counted]),
            ("counted", [self._named(self._counted(number), number.name) for number in counted]),
        ]
        pieces = {piece.name: piece for aggregate in aggregates for piece in aggregate.pieces}
        if not all(piece.is_whole for piece in pieces.values()):
            weights = [] if self.weight is None else [self._column(self.weight)]
            stages.append(("digits", [*weights, *map(self._digit, pieces.values())]))
        above = [ROWS, *(name for name, _ in stages)]
        return [
            (name, self._computed_once(self._exp.select(*passed, *columns).from_(source)))
            for (name, columns), source in zip(stages, above, strict=False)
        ]

    def _computed_once(self, stage: Any) -> Any:
        """Return a subquery that the engine does not inline, so that it is computed only once.

        OFFSET 0 prevents inlining in PostgreSQL, LIMIT -1 in SQLite.
        """
        fence = self.arithmetic.fence
        return stage if fence is None else stage.limit(-1) if fence == "limit" else stage.offset(0)

    weight_exponent = 0  # exponent of the step of weights

    def _weight_number(self) -> Number:
        return Number(str(self.weight), "double", self.weight_exponent, rounds=self.weight_exponent < 0)

    def _scaled(self, number: Number) -> Any:
        value = self._double(number, checked=True)
        return self._times_power(self._filled(value, number), -number.exponent)

    def _counted(self, number: Number) -> Any:
        """Round to the nearest integer (ties up) without adding 0.5, which would cause rounding errors."""
        exp = self._exp
        scaled = self._column(number.name)
        below = exp.Cast(this=self._floor(scaled), to=exp.DataType.build("bigint"))
        half = exp.Literal.number("0.5")
        if not number.rounds:
            integer = exp.Cast(this=scaled, to=exp.DataType.build("bigint"))
        elif self.arithmetic.truncates:
            below = self._floor(scaled)
            rest = exp.Sub(this=scaled, expression=below.copy())
            case = exp.Case().when(exp.GTE(this=rest, expression=half), self._integer(1))
            case = case.when(
                exp.LT(this=rest.copy(), expression=exp.Neg(this=half.copy())), self._integer(-1)
            )
            integer = exp.Add(this=below, expression=case.else_(self._integer(0)))
        else:
            rest = exp.Sub(this=scaled, expression=self._floor(scaled))
            integer = exp.Add(this=below, expression=self._when(exp.GTE(this=rest, expression=half), 1, 0))
        if not number.origin:
            return integer
        operator = exp.Sub if number.origin > 0 else exp.Add
        return operator(this=integer, expression=self._integer(abs(number.origin)))

    def _digit(self, piece: Piece) -> Any:
        exp = self._exp
        value = self._column(piece.of)
        if piece.is_whole:
            return value
        if piece.shift:
            shift = exp.Literal.number(piece.shift)
            value = exp.BitwiseRightShift(this=value, expression=shift)
        if not piece.last:
            mask = exp.Literal.number((1 << piece.bits) - 1)
            value = exp.BitwiseAnd(this=exp.paren(value) if piece.shift else value, expression=mask)
        return self._named(value, piece.name)

    # -- SQL expressions ----------------------------------------------------------------------------

    def _column(self, name: str) -> Any:
        return self._exp.column(name, quoted=True)

    def _named(self, expression: Any, name: str) -> Any:
        return self._exp.alias_(expression, name, quoted=True)

    def _integer(self, value: int) -> Any:
        literal = self._exp.Literal.number(abs(value))
        return self._exp.Neg(this=literal) if value < 0 else literal

    def _times_power(self, value: Any, exponent: int) -> Any:
        """Return the exact product with ``2**exponent``, which is written as a double with all digits."""
        exp = self._exp
        if exponent == 0:
            return value
        power = exp.Cast(this=exp.Literal.number(repr(2.0**exponent)), to=exp.DataType.build("double"))
        return exp.Mul(this=value, expression=power)

    def _when(self, condition: Any, true: int, false: int) -> Any:
        return self._exp.Case().when(condition, self._integer(true)).else_(self._integer(false))

    def _filled(self, value: Any, number: Number) -> Any:
        if not number.filled:
            return value
        return self._exp.Coalesce(this=value, expressions=[self._exp.Literal.number(0)])

    def _number(self, number: Number) -> Any:
        """Return a column, with booleans converted to 1 and 0."""
        exp = self._exp
        column = self._column(number.name)
        if number.kind != "truth":
            return column
        return exp.Case().when(column, self._integer(1)).when(exp.Not(this=column.copy()), self._integer(0))

    def _double(self, number: Number, *, checked: bool = False) -> Any:
        """Return a column as doubles, with NULL in place of NaN."""
        exp = self._exp
        if self.arithmetic.changing and not checked:  # a cast would convert text to numbers
            return self._number(number)
        value = exp.Cast(this=self._number(number), to=exp.DataType.build("double"))
        if number.kind != "double" or self.arithmetic.nan == "never":
            return value
        if self.arithmetic.nan == "function":
            return exp.Case().when(exp.Not(this=exp.IsNan(this=value)), value.copy())
        nan = exp.Cast(this=exp.Literal.string("NaN"), to=exp.DataType.build("double"))
        return exp.Nullif(this=value, expression=nan)

    def _floor(self, value: Any) -> Any:
        exp = self._exp
        if self.arithmetic.truncates:
            return exp.Cast(this=value.copy(), to=exp.DataType.build("bigint"))
        return exp.Floor(this=value.copy())

    def _text(self, query: Any) -> str:
        """Return the SQL text of a query, preceded by the subquery for the rows."""
        from sqlglot import ErrorLevel

        body = str(query.sql(self.arithmetic.dialect, pretty=True, unsupported_level=ErrorLevel.RAISE))
        head = f"WITH {ROWS} AS (\n  {self.given}\n)"
        return f"{head}, {body.removeprefix('WITH ')}" if body.startswith("WITH ") else f"{head}\n{body}"


def _piece_sizes(numbers: Sequence[Number], max_bits: int) -> tuple[int, int]:
    """Return the digit sizes of the first and the second factor that need the fewest products."""

    def products(sizes: tuple[int, int]) -> int:
        first, second = ([_n_pieces(number.bits, size) for number in numbers] for size in sizes)
        # Each column is multiplied by itself and by all later columns.
        following = accumulate(reversed(second))
        return sum(map(mul, first, reversed(list(following))))

    return min(((max_bits - size, size) for size in range(max_bits // 2, max_bits)), key=products)


def _n_pieces(bits: int, size: int) -> int:
    return max(-(-bits // size), 1)


def _pieces(number: Number, index: int, size: int) -> list[Piece]:
    """Split a column into digits of ``size`` bits. The last digit may have fewer bits."""
    n_pieces = _n_pieces(number.bits, size)
    if n_pieces == 1:
        return [Piece(number.name, number.name, 0, number.bits)]
    # PostgreSQL truncates names to 63 bytes, so the names of two digits could collide.
    name = number.name if len(number.name.encode()) <= _MAX_NAME_BYTES else f"column {index}"
    shifts = [size * k for k in range(n_pieces)]
    digits = [Piece(f"{name}, bits {s} to {s + size - 1}", number.name, s, size, last=False) for s in shifts]
    last = shifts[-1]
    return [*digits[:-1], Piece(f"{name}, bits from {last}", number.name, last, number.bits - last)]
