"""The committed type stub matches the native module."""

from pathlib import Path

from nanobind.stubgen import StubGen

import steelyard
from steelyard import _native

COMMAND = "python -m nanobind.stubgen -m steelyard._native -o src/steelyard/_native.pyi"


def test_stub_file_equals_generated_stub():
    generator = StubGen(_native)
    generator.put(_native)
    committed = Path(steelyard.__file__).with_name("_native.pyi").read_text(encoding="utf-8")
    assert committed == generator.get(), f"the type stub is out of date; run `{COMMAND}`"
