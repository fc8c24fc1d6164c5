"""Values for output: text whose control characters are escaped, and values with JSON types only.

Terminals and web pages would interpret control characters in untrusted text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Escaped are control characters, which begin escape sequences, and invisible format characters.
# Line separators and lone surrogates, which occur in invalid file names, are escaped too.
# Joiners U+200C and U+200D, which some scripts need, and variation selectors are not escaped.
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: object, *, keep: str = "") -> str:
    r"""Return text in which control characters are replaced by the escape sequences of Python.

    Characters in ``keep`` are not replaced.

    >>> print(visible("fraud\x1b]52;c;Zm9v\x07"))
    fraud\x1b]52;c;Zm9v\x07
    """
    return CONTROL_CHARACTERS.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode(), str(text)
    )


def json_value(value: Any) -> Any:
    """Return the value with JSON types only. NaN and infinity become None.

    >>> json_value({"losses": (0.5, math.nan)})
    {'losses': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return json_value(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
