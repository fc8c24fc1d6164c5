"""Text of strangers made harmless to look at: what a terminal or a page would obey instead of showing."""

from __future__ import annotations

import re

__all__ = ["OBEYED", "visible"]

# Control characters (escape sequences begin with them), signs that turn the direction of writing or are not
# seen at all, separators of lines, and halves of characters, which file names have where they are no text.
# Joiners that scripts need (U+200C, U+200D) and variation selectors stay.
OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: object, *, keep: str = "") -> str:
    r"""The text with every character that would be obeyed written out as Python writes it.

    Parameters
    ----------
    text : object
        What to show; what is no text is made text.
    keep : str
        Characters to leave as they are, such as the line breaks of our own sentences.

    Returns
    -------
    str

    Examples
    --------
    >>> print(visible("fraud\x1b]52;c;Zm9v\x07"))
    fraud\x1b]52;c;Zm9v\x07
    """
    return OBEYED.sub(lambda found: found[0] if found[0] in keep else _written(found[0]), str(text))


def _written(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or character.encode(
        "unicode_escape", "surrogatepass"
    ).decode("ascii")
