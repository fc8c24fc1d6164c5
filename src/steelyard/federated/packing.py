r"""Lossless compression of statistics: the size of a sum is close to its information content.

The statistics of a class are a triangle of sums :math:`S_{ab} = \sum_i x_{ia} x_{ib}` with the linear sums
:math:`s_a` and the count :math:`n` as its last row. A sum of products is predicted by the product of the
means, :math:`s_a s_b / n`. Only the difference is stored; the diagonal determines its bit width. If both
columns hold decimal fractions, such as 12.34, the sum is nearly a multiple of the product of their decimal
units; the multiple and a small remainder are then stored separately. A poor prediction costs more bits, but
the decoded sums are always exact.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from steelyard.proximal.serialization import triangle_size

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


# -- matrices of sums (triangles) --------------------------------------------------------------------


def decimals(triangles: Sequence[Sequence[int]], exponents: Sequence[int]) -> list[int]:
    """Return the number of decimal places of each column, inferred from the sums of all classes."""
    digits = [0] * len(exponents)
    for numbers in triangles:
        sums, count, diagonal, _ = _parts(numbers, len(exponents))
        found = map(_decimals, sums, diagonal, repeat(count), exponents)
        # One class can suggest too few decimal places but not too many, so the maximum over classes is used.
        digits = [max(pair) for pair in zip(digits, found, strict=True)]
    return digits


def pack_triangle(numbers: Sequence[int], exponents: Sequence[int], digits: Sequence[int]) -> bytes:
    """Compress the statistics of a class.

    ``numbers`` is the lower triangle of the sums, row by row, in quantization steps ``2**exponents``.
    """
    d = len(exponents)
    sums, count, diagonal, products = _parts(numbers, d)
    predictor = _Predictor(sums, count, digits, exponents)
    residuals = [value - predictor.product(a, a) for a, value in enumerate(diagonal)]
    lengths = np.array([_zigzag(value).bit_length() for value in residuals], dtype=np.int64)
    binary, units, rounding = [], [], []
    for (a, b), value in zip(_pairs(d), products, strict=True):
        if predictor.unit(a, b) is None:
            binary.append(value - predictor.product(a, b))
        else:
            n_units, remainder = predictor.split(a, b, value)
            units.append(n_units)
            rounding.append(remainder)
    is_decimal = _decimal_pairs(digits)
    return b"".join(
        [
            _pack([count, *sums], np.zeros(d + 1, np.int64)),
            pack_numbers(lengths.tolist()),
            _pack(residuals, lengths),
            _pack(binary, _product_widths(lengths)[~is_decimal]),
            _pack(units, _product_widths(lengths - 2 * predictor.unit_lengths)[is_decimal]),
            _pack(rounding, _longer(lengths)[is_decimal]),
        ]
    )


def unpack_triangle(data: bytes, exponents: Sequence[int], digits: Sequence[int], n_bytes: int) -> bytes:
    """Restore the numbers of :func:`pack_triangle` (``n_bytes`` each); raise ValueError if invalid."""
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
    residuals = reader.numbers(lengths)
    is_decimal = _decimal_pairs(digits)
    binary = iter(reader.numbers(_product_widths(lengths)[~is_decimal]))
    units = iter(reader.numbers(_product_widths(lengths - 2 * predictor.unit_lengths)[is_decimal]))
    rounding = iter(reader.numbers(_longer(lengths)[is_decimal]))
    reader.finish()
    out = bytearray()
    for a in range(d):
        row = [
            next(binary) + predictor.product(a, b)
            if unit is None
            else predictor.joined(a, b, next(units), next(rounding))
            for b, unit in ((b, predictor.unit(a, b)) for b in range(a))
        ]
        out += _fixed_width([*row, residuals[a] + predictor.product(a, a)], n_bytes)
    return bytes(out + _fixed_width([*sums, count], n_bytes))


def _parts(numbers: Sequence[int], d: int) -> tuple[list[int], int, list[int], list[int]]:
    """Split a triangle into linear sums, count, diagonal and other products, row by row."""
    diagonal: list[int] = []
    products: list[int] = []
    at = 0
    for a in range(d):
        products += numbers[at : at + a]
        diagonal.append(numbers[at + a])
        at += a + 1
    return list(numbers[at : at + d]), numbers[at + d], diagonal, products


def _pairs(d: int) -> Iterable[tuple[int, int]]:
    return ((a, b) for a in range(d) for b in range(a))


def _fixed_width(numbers: Iterable[int], n_bytes: int) -> bytes:
    try:
        return b"".join(number.to_bytes(n_bytes, "little", signed=True) for number in numbers)
    except OverflowError as error:
        raise ValueError("a sum is too long") from error


# -- prediction of sums -----------------------------------------------------------------------------------


class _Predictor:
    """Prediction of sums of products from linear sums, so that only small differences are stored.

    ``digits`` are the decimal places of each column; 0 means that the column does not hold decimals.
    """

    def __init__(self, sums: list[int], count: int, digits: Sequence[int], exponents: Sequence[int]) -> None:
        self.sums, self.count = sums, count
        # A quantization step is 2**-up, so one decimal unit equals 2**up / 10**digits steps.
        self._up = [-int(exponent) for exponent in exponents]
        self._ten = [10**n for n in digits]
        self._is_decimal = [n > 0 for n in digits]
        steps = [1 << max(0, up) for up in self._up]  # number of quantization steps per unit
        lengths = [(n // ten).bit_length() for n, ten in zip(steps, self._ten, strict=True)]
        self.unit_lengths: Widths = np.array(lengths, dtype=np.int64)
        self._units = [
            _round(total * ten, n) if ten > 1 else 0
            for total, ten, n in zip(sums, self._ten, steps, strict=True)
        ]

    def product(self, a: int, b: int) -> int:
        """Return the sum of products of columns ``a`` and ``b`` that their means predict."""
        return self.sums[a] * self.sums[b] // self.count if self.count > 0 else 0

    def unit(self, a: int, b: int) -> tuple[int, int] | None:
        """Return the product of the decimal units of two columns, as numerator and denominator.

        Return None unless both columns hold decimals.
        """
        if not (self._is_decimal[a] and self._is_decimal[b]):
            return None
        return 1 << (self._up[a] + self._up[b]), self._ten[a] * self._ten[b]

    def split(self, a: int, b: int, value: int) -> tuple[int, int]:
        """Split a sum of products into a number of decimal units and a remainder in quantization steps.

        The predicted number of units is subtracted from the number of units.
        """
        numerator, denominator = self.unit(a, b) or (1, 1)
        units = _round(value * denominator, numerator)
        return units - self._mean_units(a, b), value - self._from_units(a, b, units)

    def joined(self, a: int, b: int, units: int, remainder: int) -> int:
        """Return the sum of products from the two results of :meth:`split`."""
        return remainder + self._from_units(a, b, units + self._mean_units(a, b))

    def _mean_units(self, a: int, b: int) -> int:
        return self._units[a] * self._units[b] // self.count if self.count > 0 else 0

    def _from_units(self, a: int, b: int, units: int) -> int:
        """Convert decimal units to quantization steps, corrected for the rounding error of the means."""
        numerator, denominator = self.unit(a, b) or (1, 1)
        steps = _round(units * numerator, denominator)
        if self.count <= 0:
            return steps
        rounding = self.sums[a] * self.sums[b] * denominator - self._units[a] * self._units[b] * numerator
        return steps + rounding // (self.count * denominator)


def _decimals(total: int, square: int, count: int, exponent: int) -> int:
    """Return the decimal places of a column from its sum and sum of squares, or 0 if it is not decimal."""
    up = -int(exponent)
    for digits in range(1, _MAX_DIGITS + 1):
        ten = 10**digits
        if up < 0 or (1 << up) // ten < 2 * _UNIT_FRACTION:
            return 0
        predictor = _Predictor([total], count, [digits], [exponent])
        remainder = total - _round(_round(total * ten, 1 << up) << up, ten)
        square_remainder = predictor.split(0, 0, square)[1]
        is_linear_close = abs(remainder) * ten * _UNIT_FRACTION < 1 << up
        if is_linear_close and abs(square_remainder) * ten * ten * _UNIT_FRACTION < 1 << 2 * up:
            return digits
    return 0


def _decimal_pairs(digits: Sequence[int]) -> NDArray[np.bool_]:
    """Return whether both columns of each pair have decimal values."""
    decimal = np.array(digits, dtype=np.int64) > 0
    return (decimal[:, None] & decimal)[np.tril_indices(len(digits), -1)]


def _product_widths(lengths: Widths) -> Widths:
    """Return upper bounds of the bit widths of sums of products, by the Cauchy-Schwarz inequality."""
    return ((lengths[:, None] + lengths) // 2)[np.tril_indices(len(lengths), -1)]


def _longer(lengths: Widths) -> Widths:
    return (np.maximum(lengths[:, None], lengths) // 2)[np.tril_indices(len(lengths), -1)]


def _round(numerator: int, denominator: int) -> int:
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


def _joined(fields: Iterable[tuple[int, int]]) -> bytes:
    """Concatenate bit fields, given as (value, bit width), without padding between them."""
    out, buffer, n_bits = bytearray(), 0, 0
    for value, width in fields:
        buffer |= value << n_bits
        n_bits += width
        if n_bits >= 1024:
            out += (buffer & ((1 << (n_bits & ~7)) - 1)).to_bytes(n_bits >> 3, "little")
            buffer >>= n_bits & ~7
            n_bits &= 7
    return bytes(out + buffer.to_bytes((n_bits + 7) >> 3, "little"))


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
