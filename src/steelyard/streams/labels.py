"""Encoding of the labels of a stream; see :class:`steelyard._labels.LabelEncoder`."""

from steelyard._labels import Codes, LabelEncoder

__all__ = ["Codes", "LabelTable"]

LabelTable = LabelEncoder
