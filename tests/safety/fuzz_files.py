"""Fuzzing of files: mutated content with a valid checksum."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np

from steelyard.exceptions import FileFormatError, SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.envelope import PRELUDE_SIZE
from tests.safety import documents
from tests.safety.mutation import flip_bits, resealed, with_odd_header
from tests.safety.subjects import SUBJECTS, Subject

DOCUMENT_SHARE = (
    0.4  # share of files that are not learners: table models, cubes, messages, certificates, specs
)
_ORIGINALS: dict[str, bytes] = {}


def original(subject: Subject) -> bytes:
    if subject.name not in _ORIGINALS:
        _ORIGINALS[subject.name] = to_bytes(subject.fitted_copy())
    return _ORIGINALS[subject.name]


def trial(rng: np.random.Generator) -> bool:
    """Assert that a mutated file is rejected or contains a usable model."""
    if rng.random() < DOCUMENT_SHARE:
        return documents.trial(rng, damaged)
    subject = SUBJECTS[rng.integers(len(SUBJECTS))]
    try:
        model = from_bytes(damaged(original(subject), rng))
    except FileFormatError:
        return False
    _use(model, subject)
    return True


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with mutations and a valid checksum."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        CHANGES[rng.integers(len(CHANGES))](changed, rng)
    return resealed(changed)


def _use(model: Any, subject: Subject) -> None:
    """Assert that using a model succeeds or raises an error of the library."""
    start = subject.start()
    for call in (
        lambda: model.predict(subject.questions),
        lambda: model.decision_function(subject.questions),
        lambda: model.partial_fit(*subject.rows(3, 9, two_classes=True)),
        lambda: model.predict(subject.questions),
        lambda: model.forget(start[0][:2], start[1][:2]),
        lambda: from_bytes(to_bytes(model)).predict(subject.questions),
    ):
        with contextlib.suppress(SteelyardError, AttributeError):
            call()


def _body(data: bytearray) -> int:
    return min(len(data) - 1, PRELUDE_SIZE + struct.unpack_from("<Q", data, 12)[0])


def _odd_number(data: bytearray, rng: np.random.Generator) -> None:
    """Replace some numbers in the arrays by extreme values."""
    body = _body(data)
    if len(data) - body < 8:
        return
    place = body + 8 * int(rng.integers((len(data) - body) // 8))
    value = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 5e-324, 1e18, float(rng.normal())])
    struct.pack_into("<d", data, place, float(value))


def _header_number(data: bytearray, rng: np.random.Generator) -> None:
    """Replace a number in the header by another number with as many digits."""
    digits = [k for k in range(PRELUDE_SIZE, _body(data)) if 48 <= data[k] <= 57]
    if digits:
        place = digits[rng.integers(len(digits))]
        data[place] = 48 + int(rng.integers(10))


def _longer_number(data: bytearray, rng: np.random.Generator) -> None:
    """Replace a number in the header by a longer number, which takes the space of padding."""
    body = _body(data)
    digits = [k for k in range(PRELUDE_SIZE, body) if 48 <= data[k] <= 57]
    n = int(rng.integers(1, 6))
    if digits and data[body - n : body] == b" " * n:
        place = digits[rng.integers(len(digits))]
        data[place:place] = bytes(rng.integers(48, 58, size=n).astype(np.uint8))
        del data[body : body + n]


def _copy_bytes(data: bytearray, rng: np.random.Generator) -> None:
    body, n = _body(data), int(rng.integers(1, 33))
    if len(data) - body > 2 * n:
        source, target = (int(k) for k in rng.integers(body, len(data) - n, size=2))
        data[target : target + n] = data[source : source + n]


CHANGES = [
    flip_bits,
    _odd_number,
    _header_number,
    _longer_number,
    _copy_bytes,
    with_odd_header,
    with_odd_header,
]
