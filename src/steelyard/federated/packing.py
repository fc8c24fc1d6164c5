r"""Statistics as lists of integers, for masking and noise, and their lossless compression.

The statistics of a class are a triangle of sums :math:`S_{ab} = \sum_i x_{ia} x_{ib}` with the linear sums
:math:`s_a` and the count :math:`n` as its last row. A sum of products is predicted by the product of the
means, :math:`s_a s_b / n`. Only the difference is stored; the diagonal determines its bit width. If both
columns hold decimal fractions, such as 12.34, the sum is nearly a multiple of the product of their decimal
units; the multiple and a small remainder are then stored separately.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.base import Label
from steelyard.exceptions import DataError
from steelyard.proximal import ClassStatistics
from steelyard.proximal.quantizer import WEIGHT_FRACTION_BITS, Quantizer
from steelyard.proximal.serialization import from_integer_sums, to_integer_sums, triangle_size

MAX_EXPANSION = 32
"""Maximum ratio of bytes in memory to bytes of the message; a message with a larger ratio is rejected."""

# Header of a block written by _pack(): reduction of the bit widths, bits per escaped quotient, length of the
# unary code.
_HEAD = struct.Struct("<hHI")
# A quotient of at least this size is escaped: it is written in binary instead of unary code.
_ESCAPE_ONES = 12
_MAX_DIGITS = 6  # maximum number of decimal places that are tested
# A column has decimal values if its sum is within 1/16 unit of a multiple of the decimal unit,
# and its sum of squares is within 1/16 squared unit of a multiple of the squared unit.
_UNIT_FRACTION = 16

Widths = NDArray[np.int64]
_NO_WIDTH: Widths = np.zeros(1, np.int64)
Integers = NDArray[np.object_]  # Python integers of any size


# -- statistics as lists of integers -------------------------------------------------------------------


def on_quantizer(statistics: ClassStatistics, quantizer: Quantizer, source: str) -> ClassStatistics:
    """Convert statistics to the steps of the agreed quantizer; raise an error if this is not exact."""
    if statistics.from_floats:
        raise DataError(
            "the statistics contain floating-point sums of an earlier version; integer sums are needed.",
            source=source,
        )
    if not quantizer.rounds.all():
        raise DataError(
            "the agreed quantizer may refine its steps, so sums of different sites may have different steps.",
            source=source,
            hint="create the quantizer with rounds=True for all features",
        )
    converted = ClassStatistics(quantizer.n_features, quantizer=quantizer).merge(statistics).fold()
    now = converted.quantizer
    same = np.array_equal(now.exponents, quantizer.exponents) and np.array_equal(
        now.origins, quantizer.origins
    )
    if not same or now.mixed.any():
        raise DataError(
            "these rows were not learned with the agreed quantizer.",
            source=source,
            hint="use the agreed quantizer at every site: "
            "Site(..., estimator=ProximalSVC(quantizer=quantizer))",
        )
    return converted


def to_numbers(
    statistics: ClassStatistics, labels: Sequence[Label], quantizer: Quantizer, source: str
) -> list[int]:
    """Return the sums of all classes as one list of integers.

    For each class it contains the lower triangle of the sums of products, row by row, with weights in steps
    of 2**-20. The sums of a class without rows are zeros.
    """
    unknown = [label for label in statistics.classes if label not in labels]
    if unknown:
        raise DataError(f"class {unknown[0]!r} is not among the agreed labels {list(labels)}.", source=source)
    sums, fractions = to_integer_sums(on_quantizer(statistics, quantizer, source))
    shift = 0 if fractions else WEIGHT_FRACTION_BITS
    no_rows = [0] * triangle_size(quantizer.n_features)
    return [number << shift for label in labels for number in sums.get(label, no_rows)]


def from_numbers(numbers: Sequence[int], labels: Sequence[Label], quantizer: Quantizer) -> ClassStatistics:
    """Restore statistics from the result of :func:`to_numbers`."""
    are_integers = all(number % (1 << WEIGHT_FRACTION_BITS) == 0 for number in numbers)
    numbers = [number >> WEIGHT_FRACTION_BITS for number in numbers] if are_integers else numbers
    size = triangle_size(quantizer.n_features)
    triangles = {label: numbers[k * size : (k + 1) * size] for k, label in enumerate(labels)}
    present = {label: triangle for label, triangle in triangles.items() if any(triangle)}
    return from_integer_sums(quantizer, present, ClassStatistics, fractions=not are_integers)


# -- matrices of sums (triangles) --------------------------------------------------------------------


def decimals(triangles: Sequence[Sequence[int]], exponents: Sequence[int]) -> list[int]:
    """Return the number of decimal places of each column, inferred from the sums of all classes."""
    d = len(exponents)
    digits = np.zeros(d, dtype=np.int64)
    steps = 1 << np.maximum(-_integers(exponents), 0)  # number of quantization steps per unit
    for numbers in triangles:
        square = _square(numbers, d)
        found = np.zeros(d, dtype=np.int64)
        for n_places in range(1, _MAX_DIGITS + 1):
            ten = 10**n_places
            k = np.flatnonzero((found == 0) & (steps >= 2 * _UNIT_FRACTION * ten))
            sums, unit = square[d, k], steps[k]
            predictor = _Predictor(sums, square[d, d], [n_places] * len(k), _integers(exponents)[k])
            remainders = sums - _round(_round(sums * ten, unit) * unit, ten)
            _, square_remainders = predictor.split(np.arange(len(k)), np.arange(len(k)), square[k, k])
            is_close = abs(remainders) * ten * _UNIT_FRACTION < unit
            is_close &= abs(square_remainders) * ten * ten * _UNIT_FRACTION < unit * unit
            found[k[is_close]] = n_places
        # One class can suggest too few decimal places but not too many, so the maximum over classes is used.
        digits = np.maximum(digits, found)
    return digits.tolist()


def pack_triangle(numbers: Sequence[int], exponents: Sequence[int], digits: Sequence[int]) -> bytes:
    """Compress the statistics of a class.

    ``numbers`` is the lower triangle of the sums, row by row, in quantization steps ``2**exponents``.
    """
    d = len(exponents)
    square, columns = _square(numbers, d), np.arange(d)
    predictor = _Predictor(square[d, :d], square[d, d], digits, exponents)
    residuals = square[columns, columns] - predictor.products(columns, columns)
    lengths = np.array([_zigzag(value).bit_length() for value in residuals], dtype=np.int64)
    binary = square[predictor.binary] - predictor.products(*predictor.binary)
    units, rounding = predictor.split(*predictor.decimal, square[predictor.decimal])
    blocks = [
        _pack([square[d, d], *square[d, :d]], np.zeros(d + 1, np.int64)),
        pack_numbers(lengths.tolist()),
        _pack(residuals, lengths),
    ]
    blocks += map(_pack, (binary, units, rounding), predictor.widths(lengths))
    return b"".join(blocks)


def unpack_triangle(data: bytes, exponents: Sequence[int], digits: Sequence[int], n_bytes: int) -> list[int]:
    """Return the numbers of :func:`pack_triangle`; raise an error if the data are invalid.

    A number that needs more than ``n_bytes`` bytes is also an error.
    """
    d = len(exponents)
    n_numbers = triangle_size(d)
    if n_numbers * n_bytes > MAX_EXPANSION * len(data):
        raise ValueError(f"{len(data):,} bytes are too few for {n_numbers:,} sums of {n_bytes} bytes")
    reader = _Reader(data)
    if len(digits) != d or not 0 <= min(digits, default=0) <= max(digits, default=0) <= _MAX_DIGITS:
        raise ValueError("the decimal places of the columns are invalid")
    count, *sums = reader.numbers(np.zeros(d + 1, np.int64))
    predictor = _Predictor(sums, count, digits, exponents)
    lengths = np.array(reader.any_numbers(d), dtype=np.int64)
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= 17 * n_bytes + 64:
        raise ValueError("a sum is too long")
    square, columns = np.empty((d + 1, d + 1), dtype=object), np.arange(d)
    square[d] = _integers([*sums, count])
    square[columns, columns] = predictor.products(columns, columns) + _integers(reader.numbers(lengths))
    binary, units, rounding = (_integers(reader.numbers(widths)) for widths in predictor.widths(lengths))
    reader.finish()
    square[predictor.binary] = binary + predictor.products(*predictor.binary)
    square[predictor.decimal] = predictor.joined(*predictor.decimal, units, rounding)
    triangle: list[int] = square[np.tril_indices(d + 1)].tolist()
    limit = 1 << 8 * n_bytes - 1
    if not -limit <= min(triangle) <= max(triangle) < limit:
        raise ValueError("a sum is too long")
    return triangle


def _square(numbers: Sequence[int], d: int) -> Integers:
    """Return a triangle as the lower half of a matrix, whose last row contains linear sums and count."""
    square = np.empty((d + 1, d + 1), dtype=object)
    square[np.tril_indices(d + 1)] = _integers(numbers)
    return square


def _integers(numbers: Iterable[Any]) -> Integers:
    return np.array([int(number) for number in numbers], dtype=object)


class _Predictor:
    """Prediction of sums of products from linear sums, so that only small differences are stored.

    ``digits`` are the decimal places of each column; 0 means that the column does not hold decimals. The
    methods take the columns of several pairs as two arrays, ``a`` and ``b``.
    """

    def __init__(
        self, sums: Iterable[int], count: int, digits: Sequence[int], exponents: Iterable[int]
    ) -> None:
        self._sums, self._count = _integers(sums), count
        # A quantization step is 2**-up, so one decimal unit equals 2**up / 10**digits steps.
        self._up, self._ten = -_integers(exponents), 10 ** _integers(digits)
        steps = 1 << np.maximum(self._up, 0)  # number of quantization steps per unit
        lengths = [length.bit_length() for length in steps // self._ten]
        self._unit_lengths: Widths = np.array(lengths, dtype=np.int64)
        self._units = np.where(self._ten > 1, _round(self._sums * self._ten, steps), 0)
        first, second = np.tril_indices(len(digits), -1)
        decimal = np.array(digits, dtype=np.int64) > 0
        both = decimal[first] & decimal[second]
        self.decimal = first[both], second[both]  # pairs of columns of which both hold decimals
        self.binary = first[~both], second[~both]  # all other pairs of columns

    def widths(self, lengths: Widths) -> tuple[Widths, Widths, Widths]:
        """Return bit widths of binary sums, of decimal units and of their remainders.

        ``lengths`` are the bit lengths of the diagonal. By the Cauchy-Schwarz inequality they bound the sums.
        """
        (a, b), (c, d), units = self.binary, self.decimal, lengths - 2 * self._unit_lengths
        return (
            (lengths[a] + lengths[b]) // 2,
            (units[c] + units[d]) // 2,
            np.maximum(lengths[c], lengths[d]) // 2,
        )

    def products(self, a: Widths, b: Widths) -> Integers:
        """Return the sums of products of columns ``a`` and ``b`` that their means predict."""
        return self._mean(self._sums, a, b)

    def split(self, a: Widths, b: Widths, values: Integers) -> tuple[Integers, Integers]:
        """Split sums of products into numbers of decimal units and remainders in quantization steps.

        The predicted number of units is subtracted from the number of units.
        """
        numerator, denominator = self._unit(a, b)
        units = _round(values * denominator, numerator)
        return units - self._mean(self._units, a, b), values - self._from_units(a, b, units)

    def joined(self, a: Widths, b: Widths, units: Integers, remainders: Integers) -> Integers:
        """Return the sums of products from the two results of :meth:`split`."""
        return remainders + self._from_units(a, b, units + self._mean(self._units, a, b))

    def _mean(self, sums: Integers, a: Widths, b: Widths) -> Integers:
        return sums[a] * sums[b] // self._count if self._count > 0 else _integers([0] * len(a))

    def _unit(self, a: Widths, b: Widths) -> tuple[Integers, Integers]:
        """Return the products of the decimal units of two columns, as numerators and denominators."""
        return 1 << (self._up[a] + self._up[b]), self._ten[a] * self._ten[b]

    def _from_units(self, a: Widths, b: Widths, units: Integers) -> Integers:
        """Convert decimal units to quantization steps, corrected for the rounding error of the means."""
        numerator, denominator = self._unit(a, b)
        steps = _round(units * numerator, denominator)
        if self._count <= 0:
            return steps
        sums, rounded = self._sums[a] * self._sums[b], self._units[a] * self._units[b]
        return steps + (sums * denominator - rounded * numerator) // (self._count * denominator)


def _round(numerator: Any, denominator: Any) -> Any:
    return (2 * numerator + denominator) // (2 * denominator)


# -- variable-length integers -----------------------------------------------------------------------------


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Pack integers into bytes. Equal numbers need little space."""
    first = numbers[0] if numbers else 0
    return _pack([first], _NO_WIDTH) + _pack([n - first for n in numbers], np.zeros(len(numbers), np.int64))


def unpack_columns(data: bytes, n_columns: int, n: int) -> list[list[int]]:
    """Return ``n_columns`` lists of ``n`` numbers from :func:`pack_numbers`; raise ValueError if invalid."""
    if n > 8 * len(data):
        raise ValueError("the data is truncated")
    reader = _Reader(data)
    columns = [reader.any_numbers(n) for _ in range(n_columns)]
    reader.finish()
    return columns


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _pack(numbers: Sequence[int], widths: Widths) -> bytes:
    """Return numbers as a Rice code with one width per number.

    All widths are reduced by a common amount that minimizes the total length. The bits above the width form a
    quotient, which is small for most numbers. It is written in unary, as ones followed by a zero. A quotient
    of at least ``_ESCAPE_ONES`` is escaped and written in binary.
    """
    values = [_zigzag(number) for number in numbers]
    lengths = np.array([value.bit_length() for value in values], dtype=np.int64)
    reduction = _best_reduction(lengths, widths)
    low_widths = np.maximum(widths - reduction, 0)
    pairs = list(zip(values, low_widths.tolist(), strict=True))
    quotients = [value >> width for value, width in pairs]
    n_ones = np.minimum(np.array(quotients, dtype=object), _ESCAPE_ONES).astype(np.int64)
    escaped = [quotient for quotient in quotients if quotient >= _ESCAPE_ONES]
    escaped_width = max((quotient.bit_length() for quotient in escaped), default=0)
    bits = np.ones(int(n_ones.sum()) + len(n_ones), dtype=np.uint8)
    bits[np.cumsum(n_ones + 1) - 1] = 0
    fields = [(value & ((1 << width) - 1), width) for value, width in pairs]
    fields += [(quotient, escaped_width) for quotient in escaped]
    unary = np.packbits(bits, bitorder="little").tobytes()
    return _HEAD.pack(reduction, escaped_width, len(unary)) + unary + _joined(fields)


def _best_reduction(lengths: Widths, widths: Widths) -> int:
    """Return the common reduction of all bit widths that approximately minimizes the total length."""
    if not len(lengths):
        return 0
    unused = widths - lengths
    candidates = range(max(int(unused.min()), -(1 << 15)), min(int(unused.max()) + 2, (1 << 15) - 1) + 1)

    def cost(reduction: int) -> float:
        low_widths = np.maximum(widths - reduction, 0)
        high_bits = lengths - low_widths
        # The mean of quotients with k bits is about 0.75 * 2**k.
        quotients = np.where(high_bits > 0, 0.75 * 2.0 ** np.minimum(high_bits, 20), 0.0)
        escaped = (quotients >= _ESCAPE_ONES) * int(high_bits.max(initial=0))
        return float(low_widths.sum() + np.minimum(quotients, _ESCAPE_ONES).sum() + escaped.sum())

    return min(candidates, key=cost)


def _joined(fields: Sequence[tuple[int, int]]) -> bytes:
    """Concatenate bit fields, given as (value, bit width), without padding between them."""
    bits = "".join(f"{value:0{width}b}" for value, width in reversed(fields) if width)
    return int(bits or "0", 2).to_bytes((len(bits) + 7) >> 3, "little")


class _Reader:
    """Reader of blocks written by :func:`_pack`; raises ValueError for missing or extra bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, n_bytes: int) -> bytes:
        piece = self._data[self._at : self._at + n_bytes]
        if len(piece) < n_bytes:
            raise ValueError("the data is truncated")
        self._at += n_bytes
        return piece

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ValueError("there are extra bytes after the sums")

    def numbers(self, widths: Widths) -> list[int]:
        """Read one number per width."""
        reduction, escaped_width, n_unary_bytes = _HEAD.unpack(self.take(_HEAD.size))
        bits = np.unpackbits(np.frombuffer(self.take(n_unary_bytes), np.uint8), bitorder="little")
        ends = np.flatnonzero(bits == 0)[: len(widths)]
        if len(ends) < len(widths):
            raise ValueError("the data is truncated")
        n_ones = np.diff(ends, prepend=-1) - 1
        if n_ones.max(initial=0) > _ESCAPE_ONES:
            raise ValueError("a sum is too long")
        low_widths = np.maximum(widths - reduction, 0)
        n_low_bits = int(low_widths.sum())
        escaped = np.flatnonzero(n_ones == _ESCAPE_ONES).tolist()
        data = self.take((n_low_bits + len(escaped) * escaped_width + 7) >> 3)
        quotients = n_ones.tolist()
        for k, index in enumerate(escaped):
            quotients[index] = _field(data, n_low_bits + k * escaped_width, escaped_width)
        starts = (np.cumsum(low_widths) - low_widths).tolist()
        values = [
            quotient << width | _field(data, start, width)
            for quotient, start, width in zip(quotients, starts, low_widths.tolist(), strict=True)
        ]
        return [value >> 1 if not value & 1 else -(value >> 1) - 1 for value in values]

    def any_numbers(self, n: int) -> list[int]:
        """Read ``n`` numbers written by :func:`pack_numbers`."""
        (first,) = self.numbers(_NO_WIDTH)
        return [number + first for number in self.numbers(np.zeros(n, np.int64))]


def _field(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at >> 3 : (at + width + 7) >> 3], "little") >> (at & 7) & ((1 << width) - 1)
