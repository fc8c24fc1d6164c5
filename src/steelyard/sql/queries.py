"""SELECT statements that compute sums of products inside a database.

Every query reads the rows of the caller once, as ``steelyard_rows``. Values are quantized first, so sums of
products are integers and the engine adds them without rounding:

1. ``scaled`` contains every numeric column divided by its step. The step is a power of two, so the quotient
   is exact.
2. ``counted`` contains the nearest integer (ties up) minus the origin, as the quantizer computes it.
3. ``digits`` contains these integers split into digits whose products fit into 64 bits, for engines without
   fast wider integers.

DuckDB, SQLite and PostgreSQL run the same text. SQLGlot translates it for other engines and for readers. Data
values are never part of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, combinations_with_replacement, product
from operator import mul

from steelyard.params import OneOf, check_value
from steelyard.tables.databases import quoted

NARROW_BITS = 62  # maximum number of bits of a product or sum in 64-bit integers, with a safety margin
_MAX_NAME_BYTES = 40
_MAX_AGGREGATES = 1000  # maximum number of sums in one SELECT; PostgreSQL allows 1,664 columns, SQLite 2,000
ROWS = "steelyard_rows"

BoundKey = tuple[str, str | None]


@dataclass(frozen=True)
class Arithmetic:
    """Integer types of an engine and their limits."""

    dialect: str  # name of the engine in SQLGlot
    # SQL type for products that exceed 64 bits. It is None if the engine has no such type or the type is
    # several times slower than 64-bit integers. Numbers are then split into digits.
    wide: str | None
    # Maximum number of bits of a sum in the type ``wide``, or in 64-bit integers if ``wide`` is None.
    wide_bits: int
    sums_widen: bool = False  # whether SUM of 64-bit integers returns a wider type
    # Detection of NaN: by comparison ("equal": NaN equals itself), by a "function", or "never" (no NaN).
    nan: str = "equal"
    # Whether the engine may lack FLOOR, so that CAST is used, which rounds towards zero.
    truncates: bool = False
    changing: bool = False  # whether one column can hold values of several types
    # Clause that prevents the engine from inlining a subquery, "limit" or "offset", if one is needed.
    fence: str | None = None


ARITHMETICS = {
    engine.dialect: engine
    for engine in (
        Arithmetic("duckdb", None, NARROW_BITS, sums_widen=True),
        Arithmetic("sqlite", None, NARROW_BITS, nan="never", truncates=True, changing=True, fence="limit"),
        Arithmetic("postgres", None, NARROW_BITS, sums_widen=True, fence="offset"),
        Arithmetic("bigquery", "BIGNUMERIC", 125, nan="function"),
        Arithmetic("snowflake", "DECIMAL(38, 0)", 125, sums_widen=True),
        Arithmetic("clickhouse", "Int256", 254, nan="function"),
        Arithmetic("spark", "DECIMAL(38, 0)", 125),
    )
}


def arithmetic_of(dialect: str) -> Arithmetic:
    """Return the integer arithmetic of an engine."""
    check_value("dialect", dialect, OneOf(*ARITHMETICS), "steelyard.sql")
    return ARITHMETICS[dialect]


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


@dataclass(frozen=True)
class Writer:
    """Generator of the queries for one engine, which select from the subquery ``steelyard_rows``."""

    arithmetic: Arithmetic
    target: str
    weight: str | None = None
    cells: tuple[str, ...] = ()  # columns that split the rows of a class into cells
    weight_exponent: int = 0  # exponent of the step of weights

    # -- queries for value ranges ------------------------------------------------------------------------

    def bounds(self, numbers: Sequence[Number], categories: Sequence[str]) -> tuple[str, list[BoundKey]]:
        """Return a query for counts and value ranges, and the meaning of each column of its one row.

        The columns count "rows", "labels" and "classes"; for each table column its "values", those between
        steps ("off") and those that are no numbers ("strange"). Its bounds are "least" and "largest".
        """
        target = quoted(self.target)
        found: dict[BoundKey, str] = {
            ("rows", None): "COUNT(*)",
            ("labels", None): f"COUNT({target})",
            ("classes", None): f"COUNT(DISTINCT {target})",
        }
        found |= {("values", name): f"COUNT({quoted(name)})" for name in categories}
        weights = [] if self.weight is None else [Number(self.weight, "double")]
        for number in (*weights, *numbers):
            name, column = number.name, quoted(number.name)
            found["values", name] = f"COUNT({column})"
            found["least", name] = f"MIN({column})"
            found["largest", name] = f"MAX({column})"
            if not number.rounds:
                found["off", name] = f"SUM(CASE WHEN {self._off(number)} THEN 1 ELSE 0 END)"
            if self.arithmetic.changing:
                is_plain = f"TYPEOF({column}) IN ('integer', 'real', 'null')"
                found["strange", name] = f"SUM(CASE WHEN {is_plain} THEN 0 ELSE 1 END)"
        plain = self._plain((*weights, *numbers), categories)
        return f"{plain} SELECT {', '.join(found.values())} FROM plain", [*found]

    def rows_off_step(self, numbers: Sequence[Number], off: Sequence[str], limit: int) -> str:
        """Return a query for the first ``limit`` rows that the quantizer cannot represent exactly.

        In such a row a value of a column of ``off`` is not a multiple of the quantization step of the column.
        """
        columns = ", ".join(quoted(number.name) for number in numbers)
        condition = " OR ".join(self._off(number) for number in numbers if number.name in off)
        plain = self._plain(numbers, ())
        return f"{plain} SELECT {columns} FROM plain WHERE {condition} LIMIT {limit}"

    def categories(self, name: str, max_values: int) -> str:
        """Return a query for the categories in order of appearance, limited to ``max_values + 1`` rows."""
        numbered = f"SELECT {quoted(name)} AS value, ROW_NUMBER() OVER () AS place FROM {ROWS}"
        return (
            f"SELECT value, MIN(place) AS first FROM ({numbered}) AS numbered WHERE NOT value IS NULL "
            f"GROUP BY value ORDER BY first LIMIT {max_values + 1}"
        )

    def _plain(self, numbers: Sequence[Number], others: Sequence[str]) -> str:
        """Return the subquery of numeric columns as doubles, with NULL in place of NaN."""
        columns = [quoted(name) for name in (self.target, *others)]
        columns += [f"{self._double(number)} AS {quoted(number.name)}" for number in numbers]
        return f"WITH {self._stage('plain', columns, ROWS)}"

    def _off(self, number: Number) -> str:
        scaled = _times_power(quoted(number.name), -number.exponent)
        return f"{scaled} <> {self._floor(scaled)}"

    # -- queries for sums --------------------------------------------------------------------------------

    def sums(
        self, numbers: Sequence[Number], categories: Sequence[str], n_rows: int, weight_bits: int = 0
    ) -> list[Sums]:
        """Return the SELECTs of all sums of products per class.

        There is one for pairs of numeric columns (several if there are very many), one per categorical column
        with the numeric columns, and one per pair of categorical columns.
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
        used = {index for aggregate in aggregates for index in aggregate.indices}
        chosen = [number for index, number in enumerate(numbers) if index in used]
        grouped = [quoted(name) for name in (self.target, *self.cells, *keys)]
        counted = "COUNT(*)" if self.weight is None else f"SUM({quoted(self.weight)})"
        totals = [self._total(aggregate, row_bits, weight_bits) for aggregate in aggregates]
        stages, source = self._stages(grouped, chosen, aggregates)
        query = (
            f"SELECT {', '.join([*grouped, counted, *totals])} FROM {source} GROUP BY {', '.join(grouped)}"
        )
        return Sums(stages + query, keys, tuple(aggregates))

    def _total(self, aggregate: Aggregate, row_bits: int, weight_bits: int) -> str:
        """Return the SQL sum of a product in a type that cannot overflow."""
        wide = self.arithmetic.wide
        factors = [quoted(piece.name) for piece in aggregate.pieces]
        bits = sum(piece.bits for piece in aggregate.pieces) + weight_bits
        summed = bits + (0 if self.arithmetic.sums_widen else row_bits - weight_bits)
        if wide is not None and max(bits, summed) > NARROW_BITS:
            factors[0] = f"CAST({factors[0]} AS {wide})"
        if self.weight is not None:
            factors.append(quoted(self.weight))
        return f"SUM({' * '.join(factors)})"

    def _stages(
        self, passed: Sequence[str], numbers: Sequence[Number], aggregates: Sequence[Aggregate]
    ) -> tuple[str, str]:
        """Return the subqueries that convert columns to integers, and the name of the last one."""
        counted = [*numbers]
        if self.weight is not None:
            counted.append(
                Number(self.weight, "double", self.weight_exponent, rounds=self.weight_exponent < 0)
            )
        if not counted:
            return "", ROWS
        stages = [
            ("scaled", [f"{self._scaled(number)} AS {quoted(number.name)}" for number in counted]),
            ("counted", [f"{self._counted(number)} AS {quoted(number.name)}" for number in counted]),
        ]
        pieces = {piece.name: piece for aggregate in aggregates for piece in aggregate.pieces}
        if not all(piece.is_whole for piece in pieces.values()):
            weights = [] if self.weight is None else [quoted(self.weight)]
            stages.append(("digits", [*weights, *map(_digit, pieces.values())]))
        sources = [ROWS, *(name for name, _ in stages)]
        text = ", ".join(
            self._stage(name, [*passed, *columns], source)
            for (name, columns), source in zip(stages, sources, strict=False)
        )
        return f"WITH {text} ", sources[-1]

    def _stage(self, name: str, columns: Iterable[str], source: str) -> str:
        """Return a subquery that the engine does not inline, so that it is computed only once.

        OFFSET 0 prevents inlining in PostgreSQL, LIMIT -1 in SQLite.
        """
        fence = {None: "", "limit": " LIMIT -1", "offset": " OFFSET 0"}[self.arithmetic.fence]
        return f"{name} AS (SELECT {', '.join(columns)} FROM {source}{fence})"

    def _scaled(self, number: Number) -> str:
        value = self._double(number, checked=True)
        return _times_power(f"COALESCE({value}, 0)" if number.filled else value, -number.exponent)

    def _counted(self, number: Number) -> str:
        """Round to the nearest integer (ties up) without adding 0.5, which would cause rounding errors."""
        scaled = quoted(number.name)
        below = self._floor(scaled)
        if not number.rounds:
            integer = f"CAST({scaled} AS BIGINT)"
        elif self.arithmetic.truncates:
            rest = f"{scaled} - {below}"
            integer = f"{below} + CASE WHEN {rest} >= 0.5 THEN 1 WHEN {rest} < -0.5 THEN -1 ELSE 0 END"
        else:
            up = f"CASE WHEN {scaled} - {below} >= 0.5 THEN 1 ELSE 0 END"
            integer = f"CAST({below} AS BIGINT) + {up}"
        if not number.origin:
            return integer
        return f"{integer} {'-' if number.origin > 0 else '+'} {abs(number.origin)}"

    def _double(self, number: Number, *, checked: bool = False) -> str:
        """Return a column as doubles: booleans as 1 and 0, and NULL in place of NaN."""
        column = quoted(number.name)
        if number.kind == "truth":
            column = f"CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END"
        if self.arithmetic.changing and not checked:  # a cast would convert text to numbers
            return column
        value = f"CAST({column} AS DOUBLE PRECISION)"
        if number.kind != "double" or self.arithmetic.nan == "never":
            return value
        if self.arithmetic.nan == "function":
            return f"CASE WHEN NOT ISNAN({value}) THEN {value} END"
        return f"NULLIF({value}, CAST('NaN' AS DOUBLE PRECISION))"

    def _floor(self, value: str) -> str:
        return f"CAST({value} AS BIGINT)" if self.arithmetic.truncates else f"FLOOR({value})"


def with_rows(given: str, query: str) -> str:
    """Return a query preceded by the subquery for the rows, which the SELECT ``given`` returns."""
    head = f"WITH {ROWS} AS (\n  {given}\n)"
    return f"{head}, {query.removeprefix('WITH ')}" if query.startswith("WITH ") else f"{head}\n{query}"


def translated(query: str, dialect: str) -> str:
    """Return a query in the dialect of an engine, in lines that are easy to read."""
    from sqlglot import ErrorLevel, parse_one

    return str(parse_one(query).sql(dialect, pretty=True, unsupported_level=ErrorLevel.RAISE))


def _times_power(value: str, exponent: int) -> str:
    """Return the exact product with ``2**exponent``, which is written as a double with all digits."""
    return value if exponent == 0 else f"{value} * CAST({2.0**exponent!r} AS DOUBLE PRECISION)"


def _digit(piece: Piece) -> str:
    value = quoted(piece.of)
    if piece.is_whole:
        return value
    if piece.shift:
        value = f"{value} >> {piece.shift}"
    if not piece.last:
        value = f"{f'({value})' if piece.shift else value} & {(1 << piece.bits) - 1}"
    return f"{value} AS {quoted(piece.name)}"


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
