r"""Statistics in few bytes: every sum in about as many bits as it has, exactly.

A class is a triangle of sums :math:`S_{ab} = \sum_i x_{ia} x_{ib}` with the linear sums :math:`s_a` and the
count :math:`n` as its last row. Three things are known of the products once the rest was read, and need no
bits: what the means make of them, :math:`s_a s_b / n`; how large they can be, from the diagonal; and, where
columns hold decimal fractions (12.34), that nearly all of a sum is a whole number of hundredths by
hundredths. What is left is written in a width that follows the diagonal. Whole
numbers in, the same whole numbers out: what is known serves as a guess, and a wrong guess costs bits, no
exactness.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

__all__ = ["FACTOR", "decimals", "pack_numbers", "pack_triangle", "unpack_columns", "unpack_triangle"]

FACTOR = 32
"""For every byte of a message sums take at most so many bytes in memory; one that wants more is refused."""

_HEAD = struct.Struct(
    "<hHI"
)  # by how much widths are less, bits of what is written out, bytes of ones and zeros
_MANY = 12  # ones in a row; more are written out
_DECIMALS = 6  # digits after the point that are looked for
_CLEAR = 16  # a sum this much nearer to a whole number of decimal steps than to none is one of them
_CLEAR_SQUARE = 16  # and a sum of squares

Widths = NDArray[np.int64]
_NO_WIDTH: Widths = np.zeros(1, np.int64)


# -- triangles --------------------------------------------------------------------------------------------


def decimals(triangles: Sequence[Sequence[int]], exponents: Sequence[int]) -> list[int]:
    """For each column after how many digits its values end, by the look of the sums of all classes."""
    digits = [0] * len(exponents)
    for numbers in triangles:
        sums, count, diagonal, _ = _parts(numbers, len(exponents))
        found = map(_decimals, sums, diagonal, repeat(count), exponents)
        # A class may look rounder than it is; none looks less round.
        digits = [max(pair) for pair in zip(digits, found, strict=True)]
    return digits


def pack_triangle(numbers: Sequence[int], exponents: Sequence[int], digits: Sequence[int]) -> bytes:
    """The bytes of a class: the lower triangle of its sums, row by row, on a grid with these exponents."""
    d = len(exponents)
    sums, count, diagonal, rest = _parts(numbers, d)
    guess = _Guess(sums, count, digits, exponents)
    spread = [value - guess.product(a, a) for a, value in enumerate(diagonal)]
    lengths = np.array([_zigzag(value).bit_length() for value in spread], dtype=np.int64)
    plain, steps, little = [], [], []
    for (a, b), value in zip(_pairs(d), rest, strict=True):
        if guess.unit(a, b) is None:
            plain.append(value - guess.product(a, b))
        else:
            step, left = guess.split(a, b, value)
            steps.append(step)
            little.append(left)
    kinds = _kinds(digits)
    return b"".join(
        [
            _pack([count, *sums], np.zeros(d + 1, np.int64)),
            pack_numbers(lengths.tolist()),
            _pack(spread, lengths),
            _pack(plain, _product_widths(lengths)[~kinds]),
            _pack(steps, _product_widths(lengths - 2 * guess.unit_lengths)[kinds]),
            _pack(little, _longer(lengths)[kinds]),
        ]
    )


def unpack_triangle(data: bytes, exponents: Sequence[int], digits: Sequence[int], each: int) -> bytes:
    """The numbers of :func:`pack_triangle`, in ``each`` bytes; ValueError where the bytes are none."""
    d = len(exponents)
    n_numbers = (d + 1) * (d + 2) // 2
    if n_numbers * each > FACTOR * len(data):
        raise ValueError(f"{len(data):,} bytes cannot stand for {n_numbers:,} sums of {each} bytes")
    reader = _Reader(data)
    if len(digits) != d or not 0 <= min(digits, default=0) <= max(digits, default=0) <= _DECIMALS:
        raise ValueError("decimals of columns are wrong")
    count, *sums = reader.numbers(np.zeros(d + 1, np.int64))
    guess = _Guess(sums, count, digits, exponents)
    lengths = np.array(reader.any_numbers(d), dtype=np.int64)
    if lengths.size and not 0 <= lengths.min() <= lengths.max() <= 17 * each + 64:
        raise ValueError("a sum is longer than it can be")
    spread = reader.numbers(lengths)
    kinds = _kinds(digits)
    plain = iter(reader.numbers(_product_widths(lengths)[~kinds]))
    steps = iter(reader.numbers(_product_widths(lengths - 2 * guess.unit_lengths)[kinds]))
    little = iter(reader.numbers(_longer(lengths)[kinds]))
    reader.finish()
    out = bytearray()
    for a in range(d):
        row = [
            next(plain) + guess.product(a, b)
            if unit is None
            else guess.joined(a, b, next(steps), next(little))
            for b, unit in ((b, guess.unit(a, b)) for b in range(a))
        ]
        out += _written([*row, spread[a] + guess.product(a, a)], each)
    return bytes(out + _written([*sums, count], each))


def _parts(numbers: Sequence[int], d: int) -> tuple[list[int], int, list[int], list[int]]:
    """Linear sums, count, diagonal and all other products, row by row."""
    diagonal: list[int] = []
    rest: list[int] = []
    at = 0
    for a in range(d):
        rest += numbers[at : at + a]
        diagonal.append(numbers[at + a])
        at += a + 1
    return list(numbers[at : at + d]), numbers[at + d], diagonal, rest


def _pairs(d: int) -> Iterable[tuple[int, int]]:
    return ((a, b) for a in range(d) for b in range(a))


def _written(numbers: Iterable[int], each: int) -> bytes:
    try:
        return b"".join(number.to_bytes(each, "little", signed=True) for number in numbers)
    except OverflowError as error:
        raise ValueError("a sum is longer than it can be") from error


# -- guesses ----------------------------------------------------------------------------------------------


class _Guess:
    """What linear sums tell of products; ``digits`` are the decimals of each column, 0 for none."""

    def __init__(self, sums: list[int], count: int, digits: Sequence[int], exponents: Sequence[int]) -> None:
        self.sums, self.count = sums, count
        # A decimal step is 2**up / 10**digits quanta.
        self._up = [-int(exponent) for exponent in exponents]
        self._ten = [10**n for n in digits]
        self._is_decimal = [n > 0 for n in digits]
        lengths = [
            max(0, (1 << max(0, up)) // ten).bit_length() for up, ten in zip(self._up, self._ten, strict=True)
        ]
        self.unit_lengths: Widths = np.array(lengths, dtype=np.int64)
        self._steps = [
            _round(total * ten, 1 << up) if is_decimal else 0
            for total, ten, up, is_decimal in zip(
                sums, self._ten, map(_not_negative, self._up), self._is_decimal, strict=True
            )
        ]

    def product(self, a: int, b: int) -> int:
        """The sum of products that the means alone would make."""
        return self.sums[a] * self.sums[b] // self.count if self.count > 0 else 0

    def unit(self, a: int, b: int) -> tuple[int, int] | None:
        """Numerator and denominator of a decimal step by a decimal step; None where a column has none."""
        if not (self._is_decimal[a] and self._is_decimal[b]):
            return None
        return 1 << (self._up[a] + self._up[b]), self._ten[a] * self._ten[b]

    def split(self, a: int, b: int, value: int) -> tuple[int, int]:
        """Whole steps beyond what means make, and what is left."""
        numerator, denominator = self.unit(a, b) or (1, 1)
        steps = _round(value * denominator, numerator)
        return steps - self._mean_steps(a, b), value - self._rest(a, b, steps)

    def joined(self, a: int, b: int, steps: int, left: int) -> int:
        """The sum that :meth:`split` has split."""
        return left + self._rest(a, b, steps + self._mean_steps(a, b))

    def _mean_steps(self, a: int, b: int) -> int:
        return self._steps[a] * self._steps[b] // self.count if self.count > 0 else 0

    def _rest(self, a: int, b: int, steps: int) -> int:
        """Whole steps as quanta, with what rounding to quanta does to the means."""
        numerator, denominator = self.unit(a, b) or (1, 1)
        whole = _round(steps * numerator, denominator)
        if self.count <= 0:
            return whole
        rounding = self.sums[a] * self.sums[b] * denominator - self._steps[a] * self._steps[b] * numerator
        return whole + rounding // (self.count * denominator)


def _decimals(total: int, square: int, count: int, exponent: int) -> int:
    """After how many digits values end, by the look of their sum and of that of their squares; 0: none."""
    up = -int(exponent)
    for digits in range(1, _DECIMALS + 1):
        ten = 10**digits
        if up < 0 or (1 << up) // ten < 2 * _CLEAR:
            return 0
        guess = _Guess([total], count, [digits], [exponent])
        left = total - _round(_round(total * ten, 1 << up) << up, ten)
        left_square = guess.split(0, 0, square)[1]
        if abs(left) * ten * _CLEAR < 1 << up and abs(left_square) * ten * ten * _CLEAR_SQUARE < 1 << 2 * up:
            return digits
    return 0


def _kinds(digits: Sequence[int]) -> NDArray[np.bool_]:
    """For each pair of columns, whether both hold decimals."""
    decimal = np.array(digits, dtype=np.int64) > 0
    return (decimal[:, None] & decimal)[np.tril_indices(len(digits), -1)]


def _product_widths(lengths: Widths) -> Widths:
    """No product is larger than the geometric mean of the squares."""
    return ((lengths[:, None] + lengths) // 2)[np.tril_indices(len(lengths), -1)]


def _longer(lengths: Widths) -> Widths:
    return (np.maximum(lengths[:, None], lengths) // 2)[np.tril_indices(len(lengths), -1)]


def _round(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _not_negative(number: int) -> int:
    return max(0, number)


# -- whole numbers in few bits ----------------------------------------------------------------------------


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Whole numbers of any kind; many equal ones take little."""
    first = numbers[0] if numbers else 0
    return _pack([first], _NO_WIDTH) + _pack([n - first for n in numbers], np.zeros(len(numbers), np.int64))


def unpack_columns(data: bytes, n_columns: int, n: int) -> list[list[int]]:
    """Several lists of so many numbers, each of :func:`pack_numbers`; ValueError if they are none."""
    if n > 8 * len(data):
        raise ValueError("numbers end too early")
    reader = _Reader(data)
    columns = [reader.any_numbers(n) for _ in range(n_columns)]
    reader.finish()
    return columns


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _pack(numbers: Sequence[int], widths: Widths) -> bytes:
    """Numbers in their widths, all less what suits most of them; what is above, one by one.

    What is above the width is a small number for most and is written as so many ones and a zero; a number
    that would need too many is written out.
    """
    values = [_zigzag(number) for number in numbers]
    lengths = np.array([value.bit_length() for value in values], dtype=np.int64)
    less = _best_less(lengths, widths)
    kept = np.maximum(widths - less, 0)
    above = [value >> width for value, width in zip(values, kept.tolist(), strict=True)]
    marks = np.minimum(np.array(above, dtype=object), _MANY).astype(np.int64)
    high = [number for number in above if number >= _MANY]
    most = max((number.bit_length() for number in high), default=0)
    unary = np.ones(int(marks.sum()) + len(marks), dtype=np.uint8)
    unary[np.cumsum(marks + 1) - 1] = 0
    fields = [(value & ((1 << width) - 1), width) for value, width in zip(values, kept.tolist(), strict=True)]
    fields += [(number, most) for number in high]
    counted = np.packbits(unary, bitorder="little").tobytes()
    return _HEAD.pack(less, most, len(counted)) + counted + _joined(fields)


def _best_less(lengths: Widths, widths: Widths) -> int:
    """By how much all widths are lowered so that the numbers take the fewest bits, nearly."""
    if not len(lengths):
        return 0
    room = widths - lengths
    candidates = range(max(int(room.min()), -(1 << 15)), min(int(room.max()) + 2, (1 << 15) - 1) + 1)

    def cost(less: int) -> float:
        kept = np.maximum(widths - less, 0)
        over = lengths - kept
        above = np.where(over > 0, 0.75 * 2.0 ** np.minimum(over, 20), 0.0)  # of so many bits, on average
        written = (above >= _MANY) * int(over.max(initial=0))
        return float(kept.sum() + np.minimum(above, _MANY).sum() + written.sum())

    return min(candidates, key=cost)


def _joined(fields: Iterable[tuple[int, int]]) -> bytes:
    """Numbers of so many bits each, one after the other."""
    out, held, n_bits = bytearray(), 0, 0
    for value, width in fields:
        held |= value << n_bits
        n_bits += width
        if n_bits >= 1024:
            out += (held & ((1 << (n_bits & ~7)) - 1)).to_bytes(n_bits >> 3, "little")
            held >>= n_bits & ~7
            n_bits &= 7
    return bytes(out + held.to_bytes((n_bits + 7) >> 3, "little"))


class _Reader:
    """Takes blocks of :func:`_pack` from bytes; ValueError where there are not enough, or too many."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, n_bytes: int) -> bytes:
        piece = self._data[self._at : self._at + n_bytes]
        if len(piece) < n_bytes:
            raise ValueError("sums end too early")
        self._at += n_bytes
        return piece

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ValueError("more bytes than sums")

    def numbers(self, widths: Widths) -> list[int]:
        """As many numbers as there are widths."""
        less, most, n_counted = _HEAD.unpack(self.take(_HEAD.size))
        bits = np.unpackbits(np.frombuffer(self.take(n_counted), np.uint8), bitorder="little")
        ends = np.flatnonzero(bits == 0)[: len(widths)]
        if len(ends) < len(widths):
            raise ValueError("sums end too early")
        marks = np.diff(ends, prepend=-1) - 1
        if marks.max(initial=0) > _MANY:
            raise ValueError("a sum is longer than it can be")
        kept = np.maximum(widths - less, 0)
        written = np.flatnonzero(marks == _MANY).tolist()
        data = self.take((int(kept.sum()) + len(written) * most + 7) >> 3)
        short, at, above = kept.tolist(), int(kept.sum()), marks.tolist()
        for k, number in enumerate(written):
            above[number] = _field(data, at + k * most, most)
        starts = (np.cumsum(kept) - kept).tolist()
        values = [
            high << width | _field(data, start, width)
            for high, start, width in zip(above, starts, short, strict=True)
        ]
        return [value >> 1 if not value & 1 else -(value >> 1) - 1 for value in values]

    def any_numbers(self, n: int) -> list[int]:
        """So many numbers of :func:`pack_numbers`."""
        (first,) = self.numbers(_NO_WIDTH)
        return [number + first for number in self.numbers(np.zeros(n, np.int64))]


def _field(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at >> 3 : (at + width + 7) >> 3], "little") >> (at & 7) & ((1 << width) - 1)
