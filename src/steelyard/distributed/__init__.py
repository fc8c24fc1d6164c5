"""Distributed training with additive statistics: one module per engine.

``steelyard.distributed.dask`` and ``steelyard.distributed.spark`` each need their engine installed
(``pip install steelyard[dask]``, ``steelyard[spark]``); ``steelyard.distributed.files`` needs nothing.
"""

__all__: list[str] = []  # import the module of an engine by name; other engines need not be installed
