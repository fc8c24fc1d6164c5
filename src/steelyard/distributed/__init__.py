"""Distributed training with additive statistics: one module per engine.

``steelyard.distributed.dask`` and ``steelyard.distributed.spark`` each need their engine installed
(``pip install steelyard[dask]``, ``steelyard[spark]``); ``steelyard.distributed.files`` needs nothing.
"""

__all__: list[str] = []  # engines are imported by module name, because not all of them need be installed
