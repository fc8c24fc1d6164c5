"""Fuzzing of commands: wrong arguments and damaged files."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from steelyard.cli.app import main
from tests.safety.fuzz_files import original
from tests.safety.fuzz_tables import N_ROWS, spoiled, written
from tests.safety.mutation import flip_bits, resealed
from tests.safety.subjects import SUBJECTS

COMMANDS = [
    "fit rows.csv --target y --model proximal -o new",
    "fit rows.csv --continue model -o new",
    "stream rows.csv --target y --model proximal --chunk 3",
    "stream rows.csv --target y --chunk 5 --model koil --json --table t.csv --save new",
    "stream rows.csv --target y --model proximal --window 6 --on-bad-row skip",
    "predict model rows.csv",
    "predict model rows.csv --keep a -o p.jsonl",
    "evaluate model rows.csv",
    "evaluate model rows.csv --json",
    "forget model rows.csv -o new",
    "inspect model",
    "inspect learner --json",
    "merge model model -o new",
    "statistics rows.csv --target y -o new",
    "tune rows.csv --target y --model proximal --try C=1,10",
    "export model --c new.h",
    "models",
    "compare model model",
    "verify model --against rows.csv",
    "version",
]

WORDS = [
    "--help", "--target", "y", "--out", "m", "--chunk", "0", "-1", "7", "nan", "", "--model", "rows.csv",
    "model", "learner", "--set", "C=1", "C=", "proximal", "svm", "koil", "--window", "30d", "5", "--seed",
    "\x1b]0;x\x07", "--", "no-such-file", "--json", "csv", ".", "/", "-", "é", "--positive", "1", "--drop",
    "a", "b", "--categorical", "--threshold", "--cost", "miss=20,alarm=1", "--proba", "--limit", "--time",
    "--missing", "mean", "--delay", "--warmup", "-o", "1e999", "x" * 300, "--report", "r.html",
]  # fmt: skip


def trial(rng: np.random.Generator) -> bool:
    """Assert that a command exits with 0, 1 or 2, without a traceback or a control sequence."""
    words = COMMANDS[rng.integers(len(COMMANDS))].split()
    n_mistakes = int(rng.integers(0, 4))
    for _ in range(n_mistakes):
        _mistype(words, rng)
    if "stream" in words:
        words += ["--limit", "300"]  # limits the built-in stream, the default source
    table = written(rng.normal(size=N_ROWS), rng, json_lines=False)
    damaged = bool(rng.integers(2))
    runner = CliRunner()
    with runner.isolated_filesystem():
        if damaged:
            table = [spoiled(line, rng) if rng.random() < 0.2 else line for line in table]
        Path("rows.csv").write_bytes(b"\n".join(table))
        Path("model").write_bytes(_maybe_damaged(_table_model(), rng, damaged=damaged))
        subject = SUBJECTS[rng.integers(len(SUBJECTS))]
        Path("learner").write_bytes(_maybe_damaged(original(subject), rng, damaged=damaged))
        result = runner.invoke(main, words, input="")
    problem = result.exception
    assert problem is None or isinstance(problem, SystemExit), f"{words}: {repr(problem)[:200]}"
    assert result.exit_code in {0, 1, 2}, f"{words}: exit code {result.exit_code}"
    assert "\x1b]" not in result.output, f"{words}: the output has a control sequence"
    assert "Traceback" not in result.output, f"{words}: a traceback"
    if result.exit_code:
        assert len(result.output) > 15, f"{words}: the message is too short: {result.output!r}"
    elif words == ["predict", "model", "rows.csv"] and not damaged:
        assert len(result.stdout.splitlines()) == N_ROWS + 1, f"{words}: {result.stdout!r}"
    return result.exit_code == 0


def _mistype(words: list[str], rng: np.random.Generator) -> None:
    """Add, remove, replace or move one of the arguments."""
    place, other = (int(k) for k in rng.integers(len(words), size=2)) if words else (0, 0)
    word = WORDS[rng.integers(len(WORDS))]
    how = int(rng.integers(5))
    if how == 0 or not words:
        words.insert(place, word)
    elif how == 1:
        words.append(word)
    elif how == 2:
        del words[place]
    elif how == 3:
        words[place] = word
    else:
        words[place], words[other] = words[other], words[place]


def _maybe_damaged(data: bytes, rng: np.random.Generator, *, damaged: bool) -> bytes:
    changed = bytearray(data)
    if damaged and rng.integers(2):
        flip_bits(changed, rng)
        return resealed(changed)
    return data


@functools.cache
def _table_model() -> bytes:
    """Return a model of the fuzzed tables, as `steelyard fit` saves it."""
    runner, rng = CliRunner(), np.random.default_rng(3)
    with runner.isolated_filesystem():
        lines = written(rng.normal(size=40), rng, json_lines=False)
        Path("rows.csv").write_bytes(b"\n".join(lines))
        done = runner.invoke(main, ["fit", "rows.csv", "--target", "y", "--model", "proximal", "-o", "model"])
        assert done.exit_code == 0, done.output
        return Path("model").read_bytes()
