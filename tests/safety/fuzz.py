"""Random mistakes in files, tables, calls and commands: each is refused with a sentence, or does no harm.

Every trial is a matter of its area, its number and the seed alone, so that what is found can be tried again.
"""

from __future__ import annotations

import contextlib
import copy
import signal
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from click.testing import CliRunner

from steelyard.cli.app import main
from steelyard.exceptions import FileFormatError, SteelyardError
from steelyard.persistence import from_bytes, to_bytes
from steelyard.persistence.envelope import PRELUDE_SIZE, _digest
from steelyard.tables import open_stream
from tests.safety.subjects import SUBJECTS, Subject

__all__ = ["AREAS", "Report", "run"]

LONGEST = 20  # seconds that a trial may take on a busy machine before it counts as one that never ends


@dataclass
class Report:
    """What came of the trials of one area."""

    area: str
    tried: int = 0
    refused: int = 0
    taken: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.area:<9} {self.tried:>9,} tried  {self.refused:>9,} refused  {self.taken:>9,} taken  "
            f"{len(self.faults):>4} faults"
        )


Trial = Callable[[np.random.Generator], bool]  # whether the mistake was taken; AssertionError: a fault


class TooLong(BaseException):
    """A trial did not come to its end."""


@contextlib.contextmanager
def limited(seconds: int = LONGEST) -> Iterator[None]:
    def stop(_number: int, _frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(area: str, n: int, seed: int = 0, first: int = 0) -> Report:
    """Make so many trials, from a number on."""
    report = Report(area)
    trial = AREAS[area]
    for number in range(first, first + n):
        rng = np.random.default_rng([seed, number, sum(map(ord, area))])
        report.tried += 1
        try:
            with limited(), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                taken = trial(rng)
        except TooLong:
            report.faults.append(f"{area} {number}: no end after {LONGEST} s")
        except AssertionError as fault:
            report.faults.append(f"{area} {number}: {fault}")
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is no sentence of ours
            report.faults.append(f"{area} {number}: {type(fault).__name__}: {str(fault)[:200]}")
        else:
            report.taken += taken
            report.refused += not taken
    return report


# -- files ------------------------------------------------------------------------------------------

_ORIGINALS: dict[str, bytes] = {}


def _original(subject: Subject) -> bytes:
    if subject.name not in _ORIGINALS:
        _ORIGINALS[subject.name] = to_bytes(subject.taught_copy())
    return _ORIGINALS[subject.name]


def file_trial(rng: np.random.Generator) -> bool:
    """A file that was changed and sealed again: refused, or a model that can be used."""
    subject = SUBJECTS[rng.integers(len(SUBJECTS))]
    data = bytearray(_original(subject))
    for _ in range(rng.integers(1, 4)):
        _CHANGES[rng.integers(len(_CHANGES))](data, rng)
    try:
        model = from_bytes(resealed(data))
    except FileFormatError:
        return False
    _use(model, subject)
    return True


def _use(model: Any, subject: Subject) -> None:
    """Everything may be refused, but only with a sentence."""
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


def resealed(data: bytearray) -> bytes:
    """The file with a length and a checksum that fit what is in it."""
    if len(data) < PRELUDE_SIZE:
        return bytes(data)
    struct.pack_into("<Q", data, 20, len(data))
    data[28:PRELUDE_SIZE] = _digest([bytes(data[:28]), bytes(data[PRELUDE_SIZE:])])
    return bytes(data)


def _body(data: bytearray) -> int:
    return min(len(data) - 1, PRELUDE_SIZE + struct.unpack_from("<Q", data, 12)[0])


def _flip_bits(data: bytearray, rng: np.random.Generator) -> None:
    for place in rng.integers(PRELUDE_SIZE, len(data), size=rng.integers(1, 5)):
        data[place] ^= 1 << int(rng.integers(8))


def _odd_number(data: bytearray, rng: np.random.Generator) -> None:
    """An eighth of the arrays' bytes becomes a number of the kind that makes trouble."""
    body = _body(data)
    if len(data) - body < 8:
        return
    place = body + 8 * int(rng.integers((len(data) - body) // 8))
    value = rng.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 5e-324, 1e18, float(rng.normal())])
    struct.pack_into("<d", data, place, float(value))


def _header_number(data: bytearray, rng: np.random.Generator) -> None:
    """A number in the header becomes another one of as many digits."""
    digits = [k for k in range(PRELUDE_SIZE, _body(data)) if 48 <= data[k] <= 57]
    if digits:
        place = digits[rng.integers(len(digits))]
        data[place] = 48 + int(rng.integers(10))


def _longer_number(data: bytearray, rng: np.random.Generator) -> None:
    """A number in the header grows, at the cost of the blanks behind it."""
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


_CHANGES = [_flip_bits, _odd_number, _header_number, _longer_number, _copy_bytes]

# -- tables -----------------------------------------------------------------------------------------

_ODD_CELLS = [
    b"", b"nan", b"1e999", b"-0", b"0x1f", b"1_000", b'"', b'"a\nb"', b"\xff", b"\x00", b"\xef\xbb\xbf",
    b"1,2", b"true", b"2024-01-01", b"{}", b"[1]", b"\r", b"'", b"9" * 400, b"\xef\xbc\x91",
    b"\x1b]52;c;AAAA\x07",
]  # fmt: skip


def table_trial(rng: np.random.Generator) -> bool:
    """A table with mistakes: all of its rows, or those before the first mistake and a sentence."""
    json_lines = bool(rng.integers(2))
    lines = _json_lines(rng) if json_lines else _csv_lines(rng)
    for _ in range(rng.integers(0, 4)):
        place = int(rng.integers(len(lines)))
        lines[place] = _spoilt(lines[place], rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl" if json_lines else "rows.csv")
        path.write_bytes(b"\n".join(lines))
        try:
            for chunk in open_stream(path, "y", chunk=7):
                assert chunk.X.ndim == 2
                assert len(chunk.X) == len(chunk.y) > 0
                assert np.isfinite(chunk.X).all(), "a value that is not finite came through"
        except SteelyardError as error:
            assert len(str(error)) > 15, f"it says too little: {error}"
            return False
    return True


def _csv_lines(rng: np.random.Generator) -> list[bytes]:
    rows = [b"%f,%s,%d" % (rng.normal(), rng.choice([b"red", b"blue"]), rng.integers(2)) for _ in range(12)]
    return [b"a,b,y", *rows]


def _json_lines(rng: np.random.Generator) -> list[bytes]:
    row = b'{"a": %f, "b": "%s", "y": %d}'
    return [row % (rng.normal(), rng.choice([b"r", b"b"]), rng.integers(2)) for _ in range(12)]


def _spoilt(line: bytes, rng: np.random.Generator) -> bytes:
    place = int(rng.integers(len(line) + 1))
    how = int(rng.integers(4))
    if how == 0:
        return line[:place] + _ODD_CELLS[rng.integers(len(_ODD_CELLS))] + line[place:]
    if how == 1:
        return line[:place] + line[place + int(rng.integers(1, 6)) :]
    if how == 2:
        return line[:place] + bytes(rng.integers(0, 256, size=3, dtype=np.uint8)) + line[place + 3 :]
    cells = line.split(b",")
    cells[rng.integers(len(cells))] = _ODD_CELLS[rng.integers(len(_ODD_CELLS))]
    return b",".join(cells)


# -- calls ------------------------------------------------------------------------------------------

_CALLED = [subject for subject in SUBJECTS if not isinstance(subject.X, list)]


def call_trial(rng: np.random.Generator) -> bool:
    """A call with odd arguments: a sentence and nothing changed, or a learner that can be saved and asked."""
    subject = _CALLED[rng.integers(len(_CALLED))]
    model = subject.taught_copy()
    X, y = _odd_rows(subject, rng)
    name = ("fit", "partial_fit", "forget", "predict", "decision_function", "predict_proba")[rng.integers(6)]
    model.decision_function(subject.questions)  # ProximalSVC(C="auto") chooses when it is first asked
    before = to_bytes(model)
    method = getattr(model, name, None)
    if method is None:
        return False
    arguments = (X, y) if name in {"fit", "partial_fit", "forget"} else (X,)
    kept = copy.deepcopy(arguments)
    try:
        method(*arguments)
    except (SteelyardError, ValueError, TypeError) as error:
        assert isinstance(error, SteelyardError), f"{subject.name}.{name}: {type(error).__name__}: {error}"
        assert to_bytes(model) == before, f"{subject.name}.{name}: changed by a call that raised"
        return False
    assert _alike(arguments, kept), f"{subject.name}.{name}: changed what it was given"
    with contextlib.suppress(SteelyardError):
        answers = np.asarray(model.decision_function(subject.questions))
        assert np.isfinite(answers).all(), f"{subject.name}.{name}: answers that are not finite"
    from_bytes(to_bytes(model))
    return True


def _alike(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


def _odd_rows(subject: Subject, rng: np.random.Generator) -> tuple[Any, Any]:
    begin = int(rng.integers(0, 40))
    n = int(rng.integers(0, 9))
    X, y = subject.X[begin : begin + n].copy(), np.minimum(subject.y[begin : begin + n], 1)
    X = _ODD_X[rng.integers(len(_ODD_X))](X, rng)
    y = _ODD_Y[rng.integers(len(_ODD_Y))](y, rng)
    return X, y


def _with_value(value: float) -> Callable[[Any, Any], Any]:
    def change(X: Any, rng: np.random.Generator) -> Any:
        if X.size:
            X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
        return X

    return change


_ODD_X: list[Callable[[Any, Any], Any]] = [
    lambda X, _: X,
    lambda X, _: X,
    lambda X, _: X.tolist(),
    lambda X, _: X.astype(np.float32),
    lambda X, _: X.astype(">f8"),
    lambda X, _: np.asfortranarray(X),
    lambda X, _: X[:, ::-1],
    lambda X, _: X[:, :2],
    lambda X, _: X[:, 0],
    lambda X, _: X[None],
    lambda X, _: X.astype(str),
    lambda X, _: X.astype(object),
    lambda X, _: X.astype(complex),
    lambda X, _: sp.csr_array(X),
    lambda X, _: None,
    lambda X, _: "rows",
    lambda X, _: {"a": 1},
    lambda X, _: np.ma.masked_invalid(X),
    lambda X, _: X * 1e160,
    lambda X, _: X * 1e-160,
    lambda X, _: X * 0.0,
    *map(_with_value, [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e100, 5e-324, -0.0]),
]
_ODD_Y: list[Callable[[Any, Any], Any]] = [
    lambda y, _: y,
    lambda y, _: y,
    lambda y, _: y.tolist(),
    lambda y, _: y.astype(bool),
    lambda y, _: y.astype(np.uint8),
    lambda y, _: y.astype(float),
    lambda y, _: y + 0.5,
    lambda y, _: y.astype(str),
    lambda y, _: y.astype(object),
    lambda y, _: y.astype("S1"),
    lambda y, _: y[:, None],
    lambda y, _: np.column_stack([y, y]),
    lambda y, _: y[:-1],
    lambda y, _: y * np.nan,
    lambda y, _: None,
    lambda y, _: "labels",
    lambda y, _: [None] * len(y),
    lambda y, _: [[1]] * len(y),
    lambda y, _: ["a\0"] * len(y),
    lambda y, _: ["\ud800"] * len(y),
    lambda y, _: y + 2**62,
    lambda y, _: y.astype(np.uint64) + np.uint64(2**63),
    lambda y, _: np.full(len(y), 3),
    lambda y, _: y.astype("datetime64[s]"),
]

# -- commands ---------------------------------------------------------------------------------------

_WORDS = [
    "--help", "--target", "y", "--out", "m", "--chunk", "0", "-1", "7", "nan", "", "--model", "rows.csv",
    "model", "--learner", "proximal", "svm", "koil", "--window", "30d", "5", "--seed", "\x1b]0;x\x07", "--",
    "no-such-file", "--format", "json", "csv", ".", "/", "--quiet", "é", "--positive", "1", "--drop", "a",
    "b", "--categorical",
]  # fmt: skip


def command_trial(rng: np.random.Generator) -> bool:
    """A command with odd arguments: it ends with 0, 1 or 2, without a traceback or a control sequence."""
    words = [str(word) for word in rng.choice(_WORDS, size=rng.integers(0, 7))]
    command = _COMMANDS[rng.integers(len(_COMMANDS))]
    runner = CliRunner()
    with runner.isolated_filesystem():
        table = _csv_lines(rng) if rng.integers(2) else [_spoilt(line, rng) for line in _csv_lines(rng)]
        Path("rows.csv").write_bytes(b"\n".join(table))
        subject = _CALLED[rng.integers(len(_CALLED))]
        data = bytearray(_original(subject))
        if rng.integers(2):
            _flip_bits(data, rng)
            data = bytearray(resealed(data))
        Path("model").write_bytes(bytes(data))
        result = runner.invoke(main, [command, *words], input="")
    problem = result.exception
    assert problem is None or isinstance(problem, SystemExit), f"{command} {words}: {problem!r}"
    assert result.exit_code in {0, 1, 2}, f"{command} {words}: exit code {result.exit_code}"
    assert "\x1b]" not in result.output, f"{command} {words}: a control sequence came through"
    assert "Traceback" not in result.output, f"{command} {words}: a traceback"
    return result.exit_code == 0


# Not those that serve or keep on listening.
_COMMANDS = sorted(set(main.list_commands(None)) - {"serve", "demo", "stream", "site", "coordinate"})  # type: ignore[arg-type]

AREAS: dict[str, Trial] = {
    "files": file_trial,
    "tables": table_trial,
    "calls": call_trial,
    "commands": command_trial,
}
