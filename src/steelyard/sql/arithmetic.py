"""Integer types of database engines, and the largest sums of products that fit into them."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.exceptions import ParameterError

NARROW_BITS = 62  # maximum number of bits of a product or sum in 64-bit integers, with a safety margin


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
DIALECTS = tuple(ARITHMETICS)


def arithmetic_of(dialect: str) -> Arithmetic:
    """Return the integer arithmetic of an engine."""
    if dialect not in ARITHMETICS:
        raise ParameterError(
            f"dialect must be one of {', '.join(DIALECTS)}; got {dialect!r}.", source="steelyard.sql"
        )
    return ARITHMETICS[dialect]
