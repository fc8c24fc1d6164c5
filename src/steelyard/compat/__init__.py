"""Borders to other libraries: one module for each, imported only by those who have the library.

:mod:`steelyard.compat.river` takes learners into river's pipelines and river's models back;
:mod:`steelyard.compat.c_header` writes a linear model as C; :mod:`steelyard.compat.onnx` writes
learners as ONNX graphs.
"""
