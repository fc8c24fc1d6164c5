"""Training on many machines: one adapter per engine over statistics that add up.

``steelyard.distributed.dask`` and ``steelyard.distributed.spark`` each need their engine installed
(``pip install steelyard[dask]``, ``steelyard[spark]``); ``steelyard.distributed.files`` needs nothing.
"""

__all__: list[str] = []  # engines are imported by name, so that the others need not be installed
