"""Distributed training: one adapter per engine for additive statistics.

``steelyard.distributed.dask`` and ``steelyard.distributed.spark`` each need their engine installed
(``pip install steelyard[dask]``, ``steelyard[spark]``); ``steelyard.distributed.files`` needs nothing.
"""

__all__: list[str] = []  # import engines by name, so that the others need not be installed
