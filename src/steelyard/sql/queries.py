"""The SELECTs that take sums of products inside a database, written by SQLGlot.

Every query reads the rows that a caller has named once, as ``steelyard_rows``. Values are counted in whole
quanta first, so that sums of products are whole numbers too, which the engine adds without any rounding:

1. ``scaled`` has every column of numbers in units of its quantum, a power of two: still a double, and exact;
2. ``counted`` has the nearest whole number, halves upwards, relative to the origin, as a learner counts it;
3. where 64 bits are all there is, ``digits`` has these in pieces whose products fit.

Names of columns are quoted by SQLGlot, numbers are literals that it makes, and no value of the data ever
stands in the text of a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement
from typing import Any

from steelyard.sql.arithmetic import NARROW_BITS, Arithmetic

__all__ = ["Aggregate", "Asked", "Number", "Piece", "Sums", "Writer"]

_MOST_AGGREGATES = 1000  # of one SELECT; PostgreSQL ends at 1,664 columns and SQLite at 2,000
ROWS = "steelyard_rows"

Asked = tuple[str, str | None]


@dataclass(frozen=True)
class Number:
    """A column of numbers and how it is counted.

    Attributes
    ----------
    name : str
        The column.
    kind : str
        What it holds: "whole", "double", "decimal" or "truth".
    exponent : int
        The quantum is two to this power.
    origin : int
        What is taken off, in quanta.
    bits : int
        How many bits the largest of the whole numbers has.
    filled : bool
        Whether missing values are to be taken as zero.
    rounds : bool
        Whether values may lie between whole numbers of quanta; where not, the grid must become finer for it.
    """

    name: str
    kind: str
    exponent: int = 0
    origin: int = 0
    bits: int = 0
    filled: bool = False
    rounds: bool = False


@dataclass(frozen=True)
class Piece:
    """A column of ``counted`` or ``digits``: its name, by how many bits it is to be shifted, and its size."""

    name: str
    shift: int
    bits: int


@dataclass(frozen=True)
class Aggregate:
    """One sum of a SELECT: of the product of no, one or two pieces, with the places of their columns."""

    places: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def shift(self) -> int:
        """By how many bits the sum is to be shifted."""
        return sum(piece.shift for piece in self.pieces)


@dataclass(frozen=True)
class Sums:
    """A SELECT: the columns that it groups by, and what it sums; the sum of the weights comes first."""

    text: str
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...] = field(default=())


class Writer:
    """Writes the queries for one engine.

    Parameters
    ----------
    arithmetic : Arithmetic
        Its whole numbers.
    given : str
        The rows, as a SELECT in the engine's own words.
    target : str
        The column of labels.
    weight : str, optional
        A column of weights.
    """

    cells: tuple[str, ...] = ()  # columns whose values cut the rows of a class further

    def __init__(self, arithmetic: Arithmetic, given: str, target: str, weight: str | None = None) -> None:
        from sqlglot import exp

        self._exp: Any = exp
        self.arithmetic, self.given = arithmetic, given
        self.target, self.weight = target, weight

    # -- a first look -------------------------------------------------------------------------------

    def bounds(self, numbers: Sequence[Number], categories: Sequence[str]) -> tuple[str, list[Asked]]:
        """How many rows, values, smallest and largest: what decides whether sums can be taken at all.

        Returns
        -------
        text : str
            A SELECT with one row.
        asked : list of (str, str or None)
            What each of its columns is, and of which column of the table: "rows" of all; "labels" and
            "classes"; "values" of a column; the "least" and the "largest" of numbers, how many are "off" the
            grid, and how many are "strange", which is no numbers.
        """
        exp = self._exp
        target = self._column(self.target)
        asked: list[tuple[Asked, Any]] = [
            (("rows", None), exp.Count(this=exp.Star())),
            (("labels", None), exp.Count(this=target)),
            (("classes", None), exp.Count(this=exp.Distinct(expressions=[target]))),
        ]
        asked += [(("values", name), exp.Count(this=self._column(name))) for name in categories]
        weighed = [] if self.weight is None else [Number(self.weight, "double")]
        for number in (*weighed, *numbers):
            asked += [((what, number.name), sought) for what, sought in self._bounds_of(number)]
        query = exp.select(*(sought for _, sought in asked)).from_("plain")
        query = query.with_("plain", as_=self._plain((*weighed, *numbers), categories))
        return self._text(query), [what for what, _ in asked]

    def _plain(self, numbers: Sequence[Number], others: Sequence[str]) -> Any:
        """Columns of numbers as doubles; NaN is no value."""
        made = [self._named(self._double(number), number.name) for number in numbers]
        return self._exp.select(*map(self._column, (self.target, *others)), *made).from_(ROWS)

    def _bounds_of(self, number: Number) -> list[tuple[str, Any]]:
        exp = self._exp
        column = self._column(number.name)
        sought = [
            ("values", exp.Count(this=column)),
            ("least", exp.Min(this=column)),
            ("largest", exp.Max(this=column)),
        ]
        if not number.rounds:
            sought.append(("off", exp.Sum(this=self._when(self._off(number), 1, 0))))
        if self.arithmetic.changing:
            names = [exp.Literal.string(name) for name in ("integer", "real", "null")]
            plain = exp.In(this=exp.Anonymous(this="TYPEOF", expressions=[column]), expressions=names)
            sought.append(("strange", exp.Sum(this=self._when(plain, 0, 1))))
        return sought

    def _off(self, number: Number) -> Any:
        scaled = self._times_power(self._column(number.name), -number.exponent)
        return self._exp.NEQ(this=scaled, expression=self._floor(scaled))

    def off_grid(self, numbers: Sequence[Number], off: Sequence[str], limit: int) -> str:
        """The first rows in which a value of some numbers is no multiple of its quantum."""
        exp = self._exp
        query = exp.select(*(self._column(number.name) for number in numbers)).from_("plain")
        query = query.with_("plain", as_=self._plain(numbers, ()))
        wrong = [self._off(number) for number in numbers if number.name in off]
        return self._text(query.where(exp.or_(*wrong)).limit(limit))

    def categories(self, name: str, most: int) -> str:
        """Values of a column of categories in the order in which they come; one more than allowed."""
        exp = self._exp
        column = self._column(name)
        number = exp.Window(this=exp.RowNumber())
        numbered = exp.select(exp.alias_(column, "value"), exp.alias_(number, "place")).from_(ROWS)
        first = exp.alias_(exp.Min(this=exp.column("place")), "first")
        chosen = exp.select("value", first).from_(numbered.subquery("numbered"))
        chosen = chosen.where(exp.Not(this=exp.Is(this=exp.column("value"), expression=exp.Null())))
        return self._text(chosen.group_by("value").order_by("first").limit(most + 1))

    # -- sums ---------------------------------------------------------------------------------------

    def sums(
        self, numbers: Sequence[Number], categories: Sequence[str], n_rows: int, weight_bits: int = 0
    ) -> list[Sums]:
        """All SELECTs whose rows together are the sums of products of a class each.

        One for numbers with each other (several where there are very many), one for every column of
        categories with the numbers, and one for every two columns of categories.
        """
        row_bits = n_rows.bit_length() + weight_bits
        pieces = [list(self._pieces(number, row_bits)) for number in numbers]
        singles = [Aggregate((k,), (piece,)) for k, found in enumerate(pieces) for piece in found]
        pairs = [
            Aggregate((j, k), (one, other))
            for j, k in combinations_with_replacement(range(len(numbers)), 2)
            for one in pieces[j]
            for other in pieces[k]
        ]
        everything = [*singles, *pairs]
        blocks = [
            everything[begin : begin + _MOST_AGGREGATES]
            for begin in range(0, max(len(everything), 1), _MOST_AGGREGATES)
        ]
        made = [self._select((), block, numbers, row_bits, weight_bits) for block in blocks]
        made += [self._select((name,), singles, numbers, row_bits, weight_bits) for name in categories]
        made += [self._select(two, (), (), row_bits, weight_bits) for two in combinations(categories, 2)]
        return made

    def bits_needed(self, numbers: Sequence[Number], n_rows: int, weight_bits: int = 0) -> int:
        """How large the largest sum can become."""
        most = max((number.bits for number in numbers), default=0)
        return 2 * most + n_rows.bit_length() + weight_bits

    def _pieces(self, number: Number, row_bits: int) -> Iterable[Piece]:
        """The number itself, or its digits where products of it would fit nothing that the engine has."""
        size = (NARROW_BITS - row_bits) // 2
        if self.arithmetic.wide is not None or number.bits <= size:
            yield Piece(number.name, 0, number.bits)
            return
        for place, shift in enumerate(range(0, number.bits, size)):
            yield Piece(f"{number.name}, digit {place}", shift, size)

    def _select(
        self,
        keys: tuple[str, ...],
        aggregates: Sequence[Aggregate],
        numbers: Sequence[Number],
        row_bits: int,
        weight_bits: int,
    ) -> Sums:
        exp = self._exp
        used = {place for aggregate in aggregates for place in aggregate.places}
        chosen = [number for place, number in enumerate(numbers) if place in used]
        grouped = [self._column(name) for name in (self.target, *self.cells, *keys)]
        counted = exp.Count(this=exp.Star())
        if self.weight is not None:
            counted = exp.Sum(this=self._column(self.weight))
        totals = [self._total(aggregate, row_bits, weight_bits) for aggregate in aggregates]
        stages = self._stages(keys, chosen, row_bits)
        query = exp.select(*grouped, counted, *totals).from_(stages[-1][0] if stages else ROWS)
        for name, stage in stages:
            query = query.with_(name, as_=stage)
        return Sums(self._text(query.group_by(*grouped)), keys, tuple(aggregates))

    def _total(self, aggregate: Aggregate, row_bits: int, weight_bits: int) -> Any:
        """The sum of a product, in numbers in which nothing can overflow."""
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
        self, keys: tuple[str, ...], numbers: Sequence[Number], row_bits: int
    ) -> list[tuple[str, Any]]:
        """The steps from columns to whole numbers, each a SELECT from the one before."""
        exp = self._exp
        passed = [self._column(name) for name in (self.target, *self.cells, *keys)]
        weights = [] if self.weight is None else [self._column(self.weight)]
        if not numbers and self.weight is None:
            return []
        scaled = [self._named(self._scaled(number), number.name) for number in numbers]
        if self.weight is not None:
            scaled.append(self._named(self._scaled(self._weight_number()), self.weight))
        stages = [("scaled", exp.select(*passed, *scaled).from_(ROWS))]
        counted = [self._named(self._counted(number), number.name) for number in numbers]
        if self.weight is not None:
            counted.append(self._named(self._counted(self._weight_number()), self.weight))
        stages.append(("counted", exp.select(*passed, *counted).from_("scaled")))
        pieces = [(number, list(self._pieces(number, row_bits))) for number in numbers]
        if any(len(found) > 1 for _, found in pieces):
            digits = [self._digit(number, piece, found) for number, found in pieces for piece in found]
            stages.append(("digits", exp.select(*passed, *weights, *digits).from_("counted")))
        return stages

    weight_exponent = 0  # of the steps in which weights are counted

    def _weight_number(self) -> Number:
        return Number(str(self.weight), "double", self.weight_exponent, rounds=self.weight_exponent < 0)

    def _scaled(self, number: Number) -> Any:
        value = self._double(number, checked=True)
        return self._times_power(self._filled(value, number), -number.exponent)

    def _counted(self, number: Number) -> Any:
        """The nearest whole number, halves upwards; never by adding one half, which would round."""
        exp = self._exp
        scaled = self._column(number.name)
        below = exp.Cast(this=self._floor(scaled), to=exp.DataType.build("bigint"))
        half = exp.Literal.number("0.5")
        if not number.rounds:
            whole = exp.Cast(this=scaled, to=exp.DataType.build("bigint"))
        elif self.arithmetic.truncates:
            below = self._floor(scaled)
            rest = exp.Sub(this=scaled, expression=below.copy())
            case = exp.Case().when(exp.GTE(this=rest, expression=half), self._whole(1))
            case = case.when(exp.LT(this=rest.copy(), expression=exp.Neg(this=half.copy())), self._whole(-1))
            whole = exp.Add(this=below, expression=case.else_(self._whole(0)))
        else:
            rest = exp.Sub(this=scaled, expression=self._floor(scaled))
            whole = exp.Add(this=below, expression=self._when(exp.GTE(this=rest, expression=half), 1, 0))
        if not number.origin:
            return whole
        moved = exp.Sub if number.origin > 0 else exp.Add
        return moved(this=whole, expression=self._whole(abs(number.origin)))

    def _digit(self, number: Number, piece: Piece, found: list[Piece]) -> Any:
        exp = self._exp
        if len(found) == 1:
            return self._column(number.name)
        value = self._column(number.name)
        if piece.shift:
            shift = exp.Literal.number(piece.shift)
            value = exp.Paren(this=exp.BitwiseRightShift(this=value, expression=shift))
        if piece is not found[-1]:  # the last one has the sign
            mask = exp.Literal.number((1 << piece.bits) - 1)
            value = exp.BitwiseAnd(this=value, expression=mask)
        return self._named(value, piece.name)

    # -- words --------------------------------------------------------------------------------------

    def _column(self, name: str) -> Any:
        return self._exp.column(name, quoted=True)

    def _named(self, expression: Any, name: str) -> Any:
        return self._exp.alias_(expression, name, quoted=True)

    def _whole(self, value: int) -> Any:
        literal = self._exp.Literal.number(abs(value))
        return self._exp.Neg(this=literal) if value < 0 else literal

    def _times_power(self, value: Any, exponent: int) -> Any:
        """Times a power of two, written with all its digits as a double; exact."""
        exp = self._exp
        if exponent == 0:
            return value
        power = exp.Cast(this=exp.Literal.number(repr(2.0**exponent)), to=exp.DataType.build("double"))
        return exp.Mul(this=value, expression=power)

    def _when(self, condition: Any, true: int, false: int) -> Any:
        return self._exp.Case().when(condition, self._whole(true)).else_(self._whole(false))

    def _filled(self, value: Any, number: Number) -> Any:
        if not number.filled:
            return value
        return self._exp.Coalesce(this=value, expressions=[self._exp.Literal.number(0)])

    def _number(self, number: Number) -> Any:
        """A column as it is; true is 1 and false 0."""
        exp = self._exp
        column = self._column(number.name)
        if number.kind != "truth":
            return column
        return exp.Case().when(column, self._whole(1)).when(exp.Not(this=column.copy()), self._whole(0))

    def _double(self, number: Number, *, checked: bool = False) -> Any:
        """A column as doubles, NaN being no value."""
        exp = self._exp
        if self.arithmetic.changing and not checked:  # a cast would make numbers of texts
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
        """The query, after the rows that it reads."""
        from sqlglot import ErrorLevel

        body = str(query.sql(self.arithmetic.dialect, pretty=True, unsupported_level=ErrorLevel.RAISE))
        head = f"WITH {ROWS} AS (\n  {self.given}\n)"
        return f"{head}, {body.removeprefix('WITH ')}" if body.startswith("WITH ") else f"{head}\n{body}"
