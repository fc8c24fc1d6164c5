"""What whole numbers an engine has, and how large a sum of products in them can be."""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.exceptions import ParameterError

__all__ = ["ARITHMETICS", "DIALECTS", "Arithmetic", "arithmetic_of"]

NARROW_BITS = 62  # a product or sum that fits a whole number of 64 bits with room to spare


@dataclass(frozen=True)
class Arithmetic:
    """The whole numbers of an engine.

    Attributes
    ----------
    dialect : str
        What SQLGlot calls the engine.
    wide : str or None
        The type, in the engine's own words, in which products are taken that 64 bits cannot hold; None where
        there is none or products in it take several times as long, so that numbers are cut into digits.
    wide_bits : int
        How large numbers of that type can be.
    sums_widen : bool
        Whether a sum of numbers of 64 bits is taken in more.
    nan : {"equal", "function", "never"}
        How NaN is found: it equals itself; a function tells; a column never holds it.
    truncates : bool
        Whether there is no FLOOR that one can count on, and CAST to a whole number cuts towards zero.
    changing : bool
        Whether values of one column can be of several types.
    fence : {"limit", "offset"} or None
        What keeps the engine from pasting a SELECT into the one that reads it; None where it does not.
    """

    dialect: str
    wide: str | None
    wide_bits: int
    sums_widen: bool = False
    nan: str = "equal"
    truncates: bool = False
    changing: bool = False
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
    """The arithmetic of an engine by its name."""
    if dialect not in ARITHMETICS:
        raise ParameterError(
            f"dialect must be one of {', '.join(DIALECTS)}; got {dialect!r}.", source="steelyard.sql"
        )
    return ARITHMETICS[dialect]
