"""Models in one file, without pickle: nothing in a file is ever executed or imported.

``save`` writes a JSON header and raw arrays, atomically; ``load`` builds registered classes only and
answers every damaged, foreign or newer file with one :class:`~steelyard.exceptions.FileFormatError`.
The layers, each using only those before it: ``arrays`` (raw arrays one after another), ``envelope``
(magic, checksum, header), ``tree`` (plain values), ``randomness`` (random generators), ``objects``
(models), ``files`` (paths).
"""

from steelyard.persistence.files import describe, load, save, write_whole
from steelyard.persistence.objects import Storable, from_bytes, storable, to_bytes, to_parts
from steelyard.persistence.tree import decode, encode

__all__ = [
    "Storable",
    "decode",
    "describe",
    "encode",
    "from_bytes",
    "load",
    "save",
    "storable",
    "to_bytes",
    "to_parts",
    "write_whole",
]
