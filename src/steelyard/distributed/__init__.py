"""Training on many machines: one adapter per engine over statistics that add up.

``steelyard.distributed.dask`` and ``steelyard.distributed.spark`` each need their engine installed
(``pip install steelyard[dask]``, ``steelyard[spark]``); ``steelyard.distributed.files`` needs nothing.
"""
