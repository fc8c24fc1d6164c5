"""Interfaces to other libraries, one module per library, which is imported only if it is installed.

:mod:`steelyard.compat.river` adapts learners to river and river models to this library;
:mod:`steelyard.compat.c_header` exports a linear model as a C header; :mod:`steelyard.compat.onnx` exports
learners as ONNX graphs.
"""
