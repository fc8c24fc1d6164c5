"""Fuzzing of CSV tables with errors."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from steelyard.exceptions import SteelyardError
from steelyard.tables import open_stream

N_ROWS = 12

ODD_CELLS = [
    b"", b"nan", b"1e999", b"-0", b"0x1f", b"1_000", b'"', b'"a\nb"', b"\xff", b"\x00", b"\xef\xbb\xbf",
    b"1,2", b"true", b"2024-01-01", b"{}", b"[1]", b"\r", b"'", b"9" * 400, b"\xef\xbc\x91",
    b"\x1b]52;c;AAAA\x07",
]  # fmt: skip


def trial(rng: np.random.Generator) -> bool:
    """Assert that all rows are read, or all rows before the first error, which is then raised."""
    json_lines = bool(rng.integers(2))
    numbers = rng.normal(size=N_ROWS)
    lines = written(numbers, rng, json_lines=json_lines)
    spoilt = {int(place) for place in rng.integers(len(lines), size=rng.integers(0, 4))}
    for place in spoilt:
        lines[place] = spoiled(lines[place], rng)
    n_sound = min((place - (not json_lines) for place in spoilt), default=N_ROWS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl" if json_lines else "rows.csv")
        path.write_bytes(b"\n".join(lines))
        return _read(path, numbers[: max(0, n_sound)])


def _read(path: Path, sound: np.ndarray) -> bool:
    seen = 0
    stream = None
    try:
        stream = open_stream(path, "y", chunk=7)
        for chunk in stream:
            assert chunk.X.ndim == 2
            assert len(chunk.X) == len(chunk.y) > 0
            assert np.isfinite(chunk.X).all(), "a value that is not finite was accepted"
            names = stream.feature_names
            assert names is not None
            if "a" in names:
                expected = sound[seen : seen + len(chunk)]
                came = chunk.X[: len(expected), names.index("a")]
                assert np.array_equal(came, expected), (
                    f"rows from {seen} were read as {came}, not as {expected}"
                )
            seen += len(chunk)
    except SteelyardError as error:
        assert len(str(error)) > 15, f"the message is too short: {error}"
        return False
    assert seen >= len(sound), f"{seen} rows were read; expected at least {len(sound)}"
    return True


def written(numbers: np.ndarray, rng: np.random.Generator, *, json_lines: bool) -> list[bytes]:
    """Return the lines of a table with a number, a word and a label."""
    row = b'{"a": %s, "b": "%s", "y": %d}' if json_lines else b"%s,%s,%d"
    lines = [
        row % (repr(float(number)).encode(), rng.choice([b"red", b"blue"]), rng.integers(2))
        for number in numbers
    ]
    return lines if json_lines else [b"a,b,y", *lines]


def spoiled(line: bytes, rng: np.random.Generator) -> bytes:
    """Return the line with one error."""
    place = int(rng.integers(len(line) + 1))
    how = int(rng.integers(4))
    if how == 0:
        return line[:place] + ODD_CELLS[rng.integers(len(ODD_CELLS))] + line[place:]
    if how == 1:
        return line[:place] + line[place + int(rng.integers(1, 6)) :]
    if how == 2:
        return line[:place] + bytes(rng.integers(0, 256, size=3, dtype=np.uint8)) + line[place + 3 :]
    cells = line.split(b",")
    cells[rng.integers(len(cells))] = ODD_CELLS[rng.integers(len(ODD_CELLS))]
    return b",".join(cells)
