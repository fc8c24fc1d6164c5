"""The SELECTs that take sums of products inside a database, written by SQLGlot.

Every query reads the rows that a caller has named once, as ``steelyard_rows``. Values are counted in whole
quanta first, so that sums of products are whole numbers too, which the engine adds without any rounding:

1. ``scaled`` has every column of numbers in units of its quantum, a power of two: still a double, and exact;
2. ``counted`` has the nearest whole number, halves upwards, relative to the origin, as a learner counts it;
3. ``digits`` has these in pieces whose products fit 64 bits, where wider ones are slow or not to be had.

Names of columns are quoted by SQLGlot, numbers are literals that it makes, and no value of the data ever
stands in the text of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, combinations_with_replacement, product
from operator import mul
from typing import Any

from steelyard.sql.arithmetic import NARROW_BITS, Arithmetic

__all__ = ["Aggregate", "Asked", "Number", "Piece", "Sums", "Writer"]

_LONG_NAME = 40
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
    """A column of ``counted`` or ``digits``.

    Attributes
    ----------
    name : str
        What it is called.
    of : str
        Of which column of numbers it is a part.
    shift : int
        By how many bits it is to be shifted.
    bits : int
        How many it has.
    last : bool
        Whether none comes behind it, so that it has the sign.
    """

    name: str
    of: str
    shift: int
    bits: int
    last: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether it is the number itself."""
        return self.last and not self.shift


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
        chosen = self._exp.select(*map(self._column, (self.target, *others)), *made).from_(ROWS)
        return self._computed_once(chosen)

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
        room = self._room(row_bits, weight_bits)
        left, right = _piece_sizes(numbers, room)
        whole, first, second = (
            [_pieces(number, k, size) for k, number in enumerate(numbers)] for size in (room, left, right)
        )
        singles = [Aggregate((k,), (piece,)) for k, found in enumerate(second) for piece in found]
        pairs = []
        for j, k in combinations_with_replacement(range(len(numbers)), 2):
            fits = numbers[j].bits + numbers[k].bits <= room
            factors = (whole[j], whole[k]) if fits else (first[j], second[k])
            pairs += [Aggregate((j, k), (one, other)) for one, other in product(*factors)]
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

    def _room(self, row_bits: int, weight_bits: int) -> int:
        """How many bits a product may have, so that neither it nor a sum of such outgrows the numbers."""
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
        used = {place for aggregate in aggregates for place in aggregate.places}
        chosen = [number for place, number in enumerate(numbers) if place in used]
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
        self, keys: tuple[str, ...], numbers: Sequence[Number], aggregates: Sequence[Aggregate]
    ) -> list[tuple[str, Any]]:
        """The steps from columns to whole numbers, each a SELECT from the one before."""
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
        """A SELECT that is not pasted into the one that reads it, which would compute all again for each sum.

        To leave out no row says so to PostgreSQL, and to take all rows to SQLite.
        """
        fence = self.arithmetic.fence
        return stage if fence is None else stage.limit(-1) if fence == "limit" else stage.offset(0)

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


def _piece_sizes(numbers: Sequence[Number], room: int) -> tuple[int, int]:
    """How many bits pieces of a first and of a second factor have, for the fewest products that fit."""

    def products(sizes: tuple[int, int]) -> int:
        first, second = ([_n_pieces(number.bits, size) for number in numbers] for size in sizes)
        behind = accumulate(reversed(second))  # a column meets itself and those that follow
        return sum(map(mul, first, reversed(list(behind))))

    return min(((room - size, size) for size in range(room // 2, room)), key=products)


def _n_pieces(bits: int, size: int) -> int:
    return max(-(-bits // size), 1)


def _pieces(number: Number, place: int, size: int) -> list[Piece]:
    """The number itself, or its digits of so many bits; the last one may have fewer."""
    n_pieces = _n_pieces(number.bits, size)
    if n_pieces == 1:
        return [Piece(number.name, number.name, 0, number.bits)]
    # PostgreSQL cuts names after 63 bytes, and those of two pieces would be the same.
    name = number.name if len(number.name.encode()) <= _LONG_NAME else f"column {place}"
    shifts = [size * k for k in range(n_pieces)]
    made = [Piece(f"{name}, bits {s} to {s + size - 1}", number.name, s, size, last=False) for s in shifts]
    last = shifts[-1]
    return [*made[:-1], Piece(f"{name}, bits from {last}", number.name, last, number.bits - last)]
