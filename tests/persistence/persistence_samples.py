"""Example models, and functions that create files by hand."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
from sklearn.base import BaseEstimator

from steelyard.persistence import envelope as envelope_module
from steelyard.persistence import storable


@storable("tests.Inner")
class Inner(BaseEstimator):
    def __init__(self, width=1.0):
        self.width = width

    def _get_state(self):
        return {}

    def _set_state(self, state):
        raise ValueError("this one learns nothing")


@storable("tests.Learner")
class Learner(BaseEstimator):
    """Learner with a parameter of every type and a state with arrays."""

    def __init__(self, C=1.0, *, kernel="rbf", feature_map=None, random_state=None):
        self.C = C
        self.kernel = kernel
        self.feature_map = feature_map
        self.random_state = random_state

    def learn(self, seed=0):
        rng = np.random.default_rng(seed)
        self.weights_ = rng.normal(size=(3, 4))
        self.planes_ = np.asfortranarray(rng.normal(size=(3, 2)).astype(np.float32))
        self.classes_ = np.array(["legal", "fraud"])
        self.labels_ = np.array(["legal", 3, None], dtype=object)
        self.counts_ = {"legal": 98, 3: 2, np.int64(7): 1.5, b"raw": None}
        return self

    def _get_state(self):
        if not hasattr(self, "weights_"):
            return {}
        names = ("weights_", "planes_", "classes_", "labels_", "counts_")
        return {name: getattr(self, name) for name in names} | {"inner": Inner(2.0)}

    def _set_state(self, state):
        if state["weights_"].shape != (3, 4) or state["planes_"].shape != (3, 2):
            raise ValueError("shapes disagree")
        if not isinstance(state.pop("inner"), Inner):
            raise TypeError("inner must be an Inner")
        for name in ("weights_", "planes_", "classes_", "labels_", "counts_"):
            setattr(self, name, state[name])


def learner():
    return Learner(
        0.5,
        kernel=("poly", 3),
        feature_map=Inner(math.inf),
        random_state=np.random.default_rng(3),
    ).learn()


def same(a, b):
    """Return whether two trees are bitwise equal, including types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) and a.dtype.kind == "O":
        return a.shape == b.shape and all(map(same, a.ravel(), b.ravel()))
    return raw(a) == raw(b)


def raw(value):
    """Return a key that is equal if and only if values are bitwise equal."""
    if type(value) is float:
        return struct.pack("d", value)
    if isinstance(value, (np.str_, np.bytes_)):  # NumPy comparison would ignore trailing zeros
        return value.item()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype, value.shape, value.tobytes()
    return value


def assemble(content, descriptors=(), body=b"", **header):
    """Create a file by hand, with a valid checksum."""
    header = {
        "format": 1,
        "written_by": {"steelyard": "0.1.0"},
        "content": content,
        "arrays": list(descriptors),
    } | header
    return seal(json.dumps(header).encode(), body)


def seal(text, body=b"", file_format=1):
    text += b" " * (-len(text) % 64)
    start = struct.pack("<10sHQQ", envelope_module.MAGIC, file_format, len(text), 64 + len(text) + len(body))
    return start + envelope_module._digest([start, text, body]) + text + body


def resign(data):
    """Return damaged bytes with a valid length and checksum."""
    start = data[:20] + struct.pack("<Q", len(data))
    return start + envelope_module._digest([start, data[64:]]) + data[64:]
