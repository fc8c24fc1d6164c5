"""visible() escapes control characters and changes nothing else."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from steelyard._visible import CONTROL_CHARACTERS, visible

_JOINERS = "\u200c\u200d"


def _is_obeyed(character):
    """Return whether Unicode classifies a character as control, surrogate, line separator or format."""
    kind, direction = unicodedata.category(character), unicodedata.bidirectional(character)
    turns = direction in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return kind in {"Cc", "Cs", "Zl", "Zp"} or turns or character in "\u061c\u200e\u200f\ufeff"


def test_visible_escapes_every_control_character():
    missed = [
        hex(k)
        for k in range(sys.maxunicode + 1)
        if _is_obeyed(chr(k)) and not CONTROL_CHARACTERS.match(chr(k))
    ]
    assert missed == []


def test_visible_keeps_letters_marks_numbers_and_joiners():
    kept = [
        chr(k)
        for k in range(sys.maxunicode + 1)
        if unicodedata.category(chr(k))[0] in "LMNPS" or chr(k) in _JOINERS + " \xa0"
    ]
    assert [c for c in kept if visible(c) != c] == []


@given(st.text())
def test_visible_is_idempotent_and_encodable(text):
    shown = visible(text)
    assert visible(shown) == shown
    shown.encode("utf-8")


def test_visible_escapes_surrogates_in_undecodable_file_names():
    assert visible(b"caf\xe9.csv".decode("utf-8", "surrogateescape")) == "caf\\udce9.csv"
