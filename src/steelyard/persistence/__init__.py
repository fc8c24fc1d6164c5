"""Saving and loading of models without pickle: nothing in a file is executed or imported.

``save`` writes a JSON header and raw arrays atomically. ``load`` creates objects of registered classes only
and raises :class:`~steelyard.exceptions.FileFormatError` for every damaged, foreign or newer file. The
modules, from the lowest layer to the highest: ``envelope`` (checksum, header, arrays), ``tree`` (plain
values), ``objects`` (models and random generators), ``files`` (paths).
"""

from steelyard._deprecation import former_names
from steelyard.persistence.files import describe, load, save
from steelyard.persistence.objects import Storable, from_bytes, storable, to_bytes

__all__ = ["Storable", "describe", "from_bytes", "load", "save", "storable", "to_bytes"]

__getattr__ = former_names(
    __name__,
    decode="steelyard.persistence.tree.decode",
    encode="steelyard.persistence.tree.encode",
    to_parts="steelyard.persistence.objects.to_parts",
    write_whole="steelyard.persistence.files.write_atomically",
)
