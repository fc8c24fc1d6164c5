"""Type aliases of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Labels", "Rows"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Rows = NDArray[np.intp]  # indices of rows
