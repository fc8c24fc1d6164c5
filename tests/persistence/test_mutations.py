"""Mutated files are rejected or valid, and never execute code."""

from __future__ import annotations

import pickle
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from persistence_samples import Learner, learner, resign, seal

from steelyard.exceptions import FileFormatError
from steelyard.persistence import from_bytes, objects, to_bytes


class Watch:
    """Audit hook that records every event that executes or loads code."""

    events = (
        "import",
        "compile",
        "exec",
        "pickle.find_class",
        "os.system",
        "subprocess.Popen",
        "marshal.loads",
    )

    def __init__(self):
        self.active = False
        self.seen = []
        sys.addaudithook(self._note)  # Python cannot remove audit hooks, so this one is disabled later

    def _note(self, event, args):
        if self.active and event in self.events:
            self.seen.append((event, args))

    def __enter__(self):
        self.active = True
        return self

    def __exit__(self, *error):
        self.active = False


@pytest.fixture(scope="module")
def watch():
    return Watch()


@pytest.fixture(scope="module")
def originals():
    generators = [np.random.RandomState(1), np.random.Generator(np.random.Philox(1))]
    return [to_bytes(learner())] + [to_bytes(Learner(2, random_state=g)) for g in generators]


def flip_bits(data, rng):
    for position in rng.integers(len(data), size=rng.integers(1, 4)):
        data[position] ^= 1 << int(rng.integers(8))


def truncate(data, rng):
    del data[rng.integers(len(data)) :]


def splice(data, rng):
    start, end = sorted(rng.integers(len(data), size=2))
    piece = data[start : min(end, start + 200)]
    at = rng.integers(len(data))
    data[at : at + len(piece) * int(rng.integers(2))] = piece


def insert(data, rng):
    at = rng.integers(len(data))
    data[at:at] = rng.bytes(int(rng.integers(1, 70)))


def header_text(data):
    size = min(struct.unpack_from("<Q", data, 12)[0], len(data) - 64)
    return data[64 : 64 + size].rstrip(b" ")


def change_number(data, rng):
    """Replace one number of the header by a near, huge or negative number or another type."""
    text = header_text(data)
    digits = [i for i in range(len(text)) if text[i : i + 1].isdigit()]
    start = end = digits[rng.integers(len(digits))]
    while text[start - 1 : start].isdigit():
        start -= 1
    while text[end : end + 1].isdigit():
        end += 1
    old = int(text[start:end][:15])
    choices = [
        old + 1,
        old - 1,
        old * 8,
        -old,
        0,
        2**31,
        2**63,
        2**64,
        10**30,
        0.5,
        "null",
        "[]",
        '"a"',
        "1e999",
    ]
    replace_in_header(data, start, end, str(choices[rng.integers(len(choices))]).encode())


def change_word(data, rng):
    """Replace one name of the header by another."""
    words = [
        b"array",
        b"bytes",
        b"dict",
        b"pairs",
        b"tuple",
        b"scalar",
        b"objects",
        b"node",
        b"object",
        b"int",
    ]
    words += [
        b"tests.Learner",
        b"tests.Inner",
        b"Generator",
        b"RandomState",
        b"<f8",
        b"<U5",
        b"|b1",
        b"|O",
        b"C",
    ]
    words += [
        b"MT19937",
        b"PCG64",
        b"shape",
        b"class",
        b"state",
        b"F",
        b"os.system",
        b"float",
        b"str",
        b"<f4",
    ]
    text = header_text(data)
    present = [word for word in words if b'"' + word + b'"' in text]
    old = present[rng.integers(len(present))]
    at = text.index(b'"' + old + b'"') + 1
    replace_in_header(data, at, at + len(old), words[rng.integers(len(words))])


def replace_in_header(data, start, end, new):
    text = header_text(data)
    body = data[64 + struct.unpack_from("<Q", data, 12)[0] :]
    data[:] = seal(bytes(text[:start] + new + text[end:]), bytes(body))


def attempt(data):
    """Load a file; return the bytes of the loaded model, or None if the file was rejected."""
    try:
        model = from_bytes(bytes(data))
    except FileFormatError:
        return None
    saved = to_bytes(model)
    if hasattr(getattr(model, "random_state", None), "standard_normal"):
        model.random_state.standard_normal(700)  # an invalid generator would crash here
    return saved


@pytest.fixture
def forbidden(monkeypatch, watch):
    """Fail the test if anything is unpickled, evaluated, imported or executed."""
    objects._import_registering_modules()  # loading imports them for unknown names
    reached = []
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *a, **k: reached.append("pickle"))
    with watch:
        yield
    assert not reached
    assert not watch.seen


@pytest.mark.parametrize("mutate", [flip_bits, truncate, splice, insert])
def test_mutated_file_raises_and_executes_nothing(mutate, originals, forbidden):
    rng = np.random.default_rng(11)
    for number in range(1000):
        original = originals[number % len(originals)]
        data = bytearray(original)
        mutate(data, rng)
        assert attempt(data) == (original if data == original else None)


@pytest.mark.parametrize("mutate", [flip_bits, truncate, splice, insert, change_number, change_word])
def test_mutated_file_with_valid_checksum_raises_or_loads_valid_model(mutate, originals, forbidden):
    # A forged file may contain any model, but the model must be one that can be saved and used.
    rng = np.random.default_rng(12)
    refused = 0
    for number in range(1500):
        data = bytearray(originals[number % len(originals)])
        mutate(data, rng)
        if mutate in (change_number, change_word):
            sealed = bytes(data)
        else:
            sealed = resign(bytes(data)) if len(data) >= 64 else bytes(data)
        saved = attempt(sealed)
        refused += saved is None
        assert saved is None or attempt(saved) == saved
    assert refused > 100


def test_small_forged_file_never_allocates_much_memory(originals):
    rng = np.random.default_rng(13)
    tracemalloc.start()
    try:
        for number in range(300):
            data = bytearray(originals[number % len(originals)])
            change_number(data, rng)
            attempt(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5e6
